//! The listening socket of a proxy that `plimsoll run` has started. The proxy and the keepers of its clients hold the same one:
//! while any of them lives, nobody else can listen at the address, and connections wait there until a proxy accepts them.
//!
//! A keeper opens the socket and passes it to the proxy as its standard input. A later keeper asks the proxy for it, over a local
//! socket whose name is in `proxy.json`.
//!
//! SECURITY: who asks and who answers check that the other one is the same user, since names of local sockets are no secret.

#[cfg(unix)]
pub(super) use unix::{ProxySocket, SocketOffer, take_input};

#[cfg(not(unix))]
pub(super) use other::{ProxySocket, SocketOffer, take_input};

#[cfg(unix)]
mod unix {
    use std::{
        fs::File,
        io::{self, IoSlice, IoSliceMut},
        mem::MaybeUninit,
        net::{self, SocketAddr},
        os::fd::{AsFd, OwnedFd},
        path::PathBuf,
        process::{Command, Stdio},
        time::Duration,
    };

    use rustix::net::{
        RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer,
        SendAncillaryMessage, SendFlags, recvmsg, sendmsg,
    };
    use tokio::{
        io::Interest,
        net::{TcpListener, UnixListener, UnixStream},
        time::{sleep, timeout},
    };

    use crate::cli::{
        CommandError, find_reachable, proxy_file::RunningProxy, serve::bind_listener,
    };

    /// For a proxy of this machine to answer.
    const ANSWERS_WITHIN: Duration = Duration::from_secs(3);
    const AGAIN_AFTER: Duration = Duration::from_millis(100);

    /// A keeper's copy of the socket.
    pub(in crate::cli) struct ProxySocket(net::TcpListener);

    impl ProxySocket {
        /// # Errors
        /// Nobody can listen there.
        pub(in crate::cli) async fn bind(address: SocketAddr) -> Result<Self, CommandError> {
            let listener = bind_listener(address).await?;
            listener.into_std().map(Self).map_err(CommandError::Start)
        }

        /// The socket of a running proxy. `None`: its user has started it, or it does not answer.
        pub(in crate::cli) async fn ask_for(proxy: &RunningProxy) -> Option<Self> {
            let path = find_path(proxy.socket.as_ref()?);
            let asked = async {
                let stream = UnixStream::connect(path).await?;
                check_user(&stream)?;
                let receive = || receive_socket(&stream);
                stream.async_io(Interest::READABLE, receive).await
            };
            let listener = net::TcpListener::from(timeout(ANSWERS_WITHIN, asked).await.ok()?.ok()?);
            let is_its = find_reachable(listener.local_addr().ok()?) == proxy.address;
            is_its.then_some(Self(listener))
        }

        /// Makes a command of `plimsoll serve` listen on the socket.
        pub(in crate::cli) fn pass_to(&self, serve: &mut Command) -> io::Result<()> {
            let address = self.0.local_addr()?.to_string();
            let copy = OwnedFd::from(self.0.try_clone()?);
            serve
                .args(["--listen", &address, "--listen-on-input"])
                .stdin(Stdio::from(copy));
            Ok(())
        }
    }

    /// The socket that stands in the place of standard input, which is empty from then on.
    pub(in crate::cli) fn take_input() -> io::Result<TcpListener> {
        let input = io::stdin().as_fd().try_clone_to_owned()?;
        rustix::stdio::dup2_stdin(File::open("/dev/null")?)?;
        let listener = net::TcpListener::from(input);
        listener.set_nonblocking(true)?;
        TcpListener::from_std(listener)
    }

    /// Gives the socket to keepers that ask for it.
    pub(in crate::cli) struct SocketOffer {
        listener: UnixListener,
        socket: OwnedFd,
        /// A random name, new with each start.
        pub(in crate::cli) name: String,
    }

    impl SocketOffer {
        pub(in crate::cli) fn open(socket: &TcpListener) -> io::Result<Self> {
            let mut name = [0; 16];
            getrandom::fill(&mut name).map_err(io::Error::other)?;
            let name = hex::encode(name);
            Ok(Self {
                listener: UnixListener::bind(find_path(&name))?,
                socket: socket.as_fd().try_clone_to_owned()?,
                name,
            })
        }

        /// Answers until it is dropped.
        pub(in crate::cli) async fn answer(&self) {
            loop {
                let Ok((stream, _)) = self.listener.accept().await else {
                    // Such as no free file descriptors.
                    sleep(AGAIN_AFTER).await;
                    continue;
                };
                if check_user(&stream).is_ok() {
                    let send = || send_socket(&stream, &self.socket);
                    // A keeper that gets none goes on without one.
                    let _ = stream.async_io(Interest::WRITABLE, send).await;
                }
            }
        }
    }

    impl Drop for SocketOffer {
        fn drop(&mut self) {
            if cfg!(not(target_os = "linux")) {
                let _ = std::fs::remove_file(find_path(&self.name));
            }
        }
    }

    /// On Linux a name without a file, of any length; elsewhere a file, whose path has to be short.
    fn find_path(name: &str) -> PathBuf {
        let name = format!("plimsoll-{name}");
        if cfg!(target_os = "linux") {
            PathBuf::from(format!("\0{name}"))
        } else {
            std::env::temp_dir().join(name)
        }
    }

    fn check_user(stream: &UnixStream) -> io::Result<()> {
        if stream.peer_cred()?.uid() == rustix::process::geteuid().as_raw() {
            Ok(())
        } else {
            Err(io::ErrorKind::PermissionDenied.into())
        }
    }

    fn send_socket(stream: &UnixStream, socket: &OwnedFd) -> io::Result<()> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let sockets = [socket.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&sockets));
        // A byte has to go with it.
        let data = [IoSlice::new(&[0])];
        sendmsg(stream, &data, &mut control, SendFlags::empty())?;
        Ok(())
    }

    fn receive_socket(stream: &UnixStream) -> io::Result<OwnedFd> {
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut byte = [0];
        recvmsg(
            stream,
            &mut [IoSliceMut::new(&mut byte)],
            &mut control,
            RecvFlags::empty(),
        )?;
        let received = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut sockets) => sockets.next(),
            _ => None,
        });
        let socket = received.ok_or(io::ErrorKind::InvalidData)?;
        // No process that is started from here gets it, unless it is passed on.
        rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC)?;
        Ok(socket)
    }

    #[cfg(test)]
    mod tests {
        use super::*;
        use crate::http::lease::LeaseSecret;

        #[tokio::test]
        async fn who_asks_gets_a_copy_of_the_socket() {
            let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
            let address = listener.local_addr().unwrap();
            let offer = SocketOffer::open(&listener).unwrap();
            let mut proxy = RunningProxy {
                address,
                process: std::process::id(),
                settings: None,
                secret: LeaseSecret::random().unwrap(),
                socket: Some(offer.name.clone()),
            };
            let ask = async |proxy: &RunningProxy| {
                tokio::select! {
                    got = ProxySocket::ask_for(proxy) => got,
                    () = offer.answer() => None,
                }
            };
            let got = ask(&proxy).await.unwrap();
            assert_eq!(got.0.local_addr().unwrap(), address);
            let flags = rustix::io::fcntl_getfd(&got.0).unwrap();
            assert!(flags.contains(rustix::io::FdFlags::CLOEXEC));
            drop(listener);
            let busy = ProxySocket::bind(address).await.err();
            assert!(matches!(busy, Some(CommandError::AddressInUse(_))));
            // What it gets has to be the socket of that address.
            proxy.address.set_port(address.port() ^ 1);
            assert!(ask(&proxy).await.is_none());
            proxy.socket = None;
            assert!(ask(&proxy).await.is_none());
        }
    }
}

/// Where sockets cannot be passed on: only the address is kept, and the proxy listens there by itself.
#[cfg(not(unix))]
mod other {
    use std::{
        future::{pending, ready},
        io,
        net::SocketAddr,
        process::{Command, Stdio},
    };

    use tokio::net::TcpListener;

    use crate::cli::{CommandError, proxy_file::RunningProxy, serve::bind_listener};

    pub(in crate::cli) struct ProxySocket(SocketAddr);

    impl ProxySocket {
        /// # Errors
        /// Nobody can listen there now.
        pub(in crate::cli) async fn bind(address: SocketAddr) -> Result<Self, CommandError> {
            drop(bind_listener(address).await?);
            Ok(Self(address))
        }

        pub(in crate::cli) fn ask_for(_: &RunningProxy) -> impl Future<Output = Option<Self>> {
            ready(None)
        }

        pub(in crate::cli) fn pass_to(&self, serve: &mut Command) -> io::Result<()> {
            let address = self.0.to_string();
            serve.args(["--listen", &address]).stdin(Stdio::null());
            Ok(())
        }
    }
    pub(in crate::cli) fn take_input() -> io::Result<TcpListener> {
        Err(io::ErrorKind::Unsupported.into())
    }

    pub(in crate::cli) struct SocketOffer {
        pub(in crate::cli) name: String,
    }

    impl SocketOffer {
        pub(in crate::cli) fn open(_: &TcpListener) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in crate::cli) fn answer(&self) -> impl Future<Output = ()> {
            pending()
        }
    }
}
