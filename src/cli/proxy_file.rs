//! The file by which a running proxy is found in its data directory: [`ProxyFile`] writes it, `plimsoll run` reads it.

use std::{
    fs::{self, File},
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use crate::{
    config::{DataDir, LoadedConfig},
    http::lease::LeaseSecret,
};

const FILE_NAME: &str = "proxy.json";

/// A file of some hundred bytes; more is none of the proxy's.
const MAX_FILE_BYTES: u64 = 16 << 10;

/// A running proxy.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(super) struct RunningProxy {
    /// Where clients of this machine reach it.
    pub(super) address: SocketAddr,
    /// The id of its process.
    pub(super) process: u32,
    /// The settings file that it has read.
    pub(super) settings: Option<PathBuf>,
    pub(super) secret: LeaseSecret,
    /// By what name it gives its listening socket to keepers ([`super::proxy_socket`]). `None`: `plimsoll run` has not started it.
    pub(super) socket: Option<String>,
}

impl RunningProxy {
    /// The settings file of a process, as another one in another folder would name it.
    pub(super) fn name_settings(loaded: &LoadedConfig) -> Option<PathBuf> {
        let file = loaded.file.as_ref()?;
        Some(std::path::absolute(file).unwrap_or_else(|_| file.clone()))
    }

    /// Who it is, and what to do where it is in the way.
    pub(super) fn describe(&self) -> String {
        let Self {
            address, process, ..
        } = self;
        match self.socket {
            Some(_) => format!(
                "the proxy of `plimsoll run` at http://{address} (process {process}), which ends a minute after its last client: \
                 use that one, or stop it (kill {process})"
            ),
            None => format!(
                "the proxy at http://{address} (process {process}): use that one, or stop it (kill {process})"
            ),
        }
    }

    /// The proxy that the data directory names. It may have ended: only a lease tells.
    pub(super) fn read(data_dir: &Path) -> Option<Self> {
        let path = data_dir.join(FILE_NAME);
        let file = open_own(&path).ok()?;
        // Half a file, or one of another release, is as good as none.
        let mut text = Vec::new();
        file.take(MAX_FILE_BYTES).read_to_end(&mut text).ok()?;
        serde_json::from_slice(&text).ok()
    }
}

/// Opens a file that only this user can have written.
///
/// SECURITY: in a folder that others can write to, another user's file would name that user's listener.
fn open_own(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use rustix::fs::OFlags;
        use std::os::unix::fs::OpenOptionsExt as _;
        let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
        options.custom_flags(flags.bits().cast_signed());
    }
    let file = options.open(path)?;
    #[cfg(unix)]
    {
        use std::os::unix::fs::MetadataExt as _;
        let found = file.metadata()?;
        let is_own = found.uid() == rustix::process::geteuid().as_raw();
        if !found.is_file() || !is_own || found.mode() & 0o077 != 0 {
            return Err(io::Error::from(io::ErrorKind::PermissionDenied));
        }
    }
    Ok(file)
}

/// The file of this process. Dropping it removes the file, unless another proxy has written it since.
pub(super) struct ProxyFile {
    path: PathBuf,
    process: u32,
}

impl ProxyFile {
    /// Replaces the file of a proxy that is gone. Nothing is written without a data directory.
    ///
    /// SECURITY: it has the secret, so only its owner can read it.
    pub(super) fn write(data_dir: &DataDir, proxy: &RunningProxy) -> io::Result<Option<Self>> {
        let Some(folder) = data_dir.path() else {
            return Ok(None);
        };
        fs::create_dir_all(folder)?;
        // A temporary file has the mode 600.
        let mut draft = tempfile::Builder::new()
            .prefix(".proxy.")
            .tempfile_in(folder)?;
        serde_json::to_writer(&mut draft, proxy)?;
        draft.flush()?;
        let path = folder.join(FILE_NAME);
        draft.persist(&path)?;
        Ok(Some(Self {
            path,
            process: proxy.process,
        }))
    }
}

impl ProxyFile {
    /// Leaves the file behind.
    pub(super) fn leave(self) {
        std::mem::forget(self);
    }
}

impl Drop for ProxyFile {
    fn drop(&mut self) {
        let now = self.path.parent().and_then(RunningProxy::read);
        if now.is_some_and(|proxy| proxy.process == self.process) {
            // What stays is recognised as the file of a proxy that is gone.
            let _ = fs::remove_file(&self.path);
        }
    }
}
