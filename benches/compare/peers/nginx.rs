//! nginx as a plain reverse proxy for streams: one worker, keep-alive connections to the provider,
//! no buffering, no access log.

use std::{io, process::Command};

use super::{PeerFolder, Setup, Speed, program, version};

pub(super) fn setup(place: &PeerFolder) -> io::Result<Setup> {
    let nginx = program("nginx")?;
    let user = if rustix::process::getuid().is_root() {
        "user root;"
    } else {
        ""
    };
    let PeerFolder {
        address,
        provider,
        folder,
    } = place;
    let folder_ = folder.display();
    let settings = format!(
        "daemon off; {user} worker_processes 1; worker_rlimit_nofile 16384;
pid {folder_}/pid; error_log {folder_}/error crit;
events {{ worker_connections 8192; }}
http {{
  access_log off;
  client_max_body_size 64m;
  client_body_temp_path {folder_}/body; proxy_temp_path {folder_}/proxy;
  fastcgi_temp_path {folder_}/f; uwsgi_temp_path {folder_}/u; scgi_temp_path {folder_}/s;
  keepalive_requests 100000000;
  upstream provider {{ server {provider}; keepalive 256; keepalive_requests 100000000; }}
  server {{
    listen {address} backlog=4096;
    location / {{
      proxy_pass http://provider;
      proxy_http_version 1.1;
      proxy_set_header Connection \"\";
      proxy_buffering off;
      proxy_request_buffering off;
      proxy_read_timeout 600s;
    }}
  }}
}}
"
    );
    let file = place.write("nginx.conf", &settings)?;
    let mut command = Command::new(&nginx);
    command.arg("-p").arg(folder).arg("-c").arg(file);
    Ok(Setup {
        version: version(Command::new(&nginx).arg("-v"))?,
        command,
        speed: Speed::Fast,
        headers: Vec::new(),
        expected: None,
    })
}
