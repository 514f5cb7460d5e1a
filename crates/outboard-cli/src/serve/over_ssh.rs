//! A server that `outboard run --server ssh://...` has started here over ssh: it says where it is,
//! and ends with the connection.

use std::io::Write;

use miette::{IntoDiagnostic, Result};
use outboard_client::invitation::{Invitation, address};
use outboard_supervisor::{Config, auth};
use rustix::process::{Signal, getpid, kill_process};

use super::one_time::OneTime;
use crate::local;
use crate::private_folder::PrivateFolder;
use crate::ssh::MARK;

/// Who the clients are for the server: whoever has its token, which is who has started it.
const OWNER: &str = "ssh";

/// Has the server say where it is once clients can connect, and end with its standard input. What
/// is returned is held as long as it serves.
pub(super) fn attach(config: &mut Config) -> Result<PrivateFolder> {
    let OneTime { state, fingerprint, token } = OneTime::make(OWNER, auth::Tls::On, config)?;
    config.on_ready = Some(Box::new(move |at| {
        let said = address(&at.to_string()).map(|server| {
            let mut output = std::io::stdout();
            let told = Invitation { server, fingerprint, token };
            writeln!(output, "{MARK}ready {told}").and_then(|()| output.flush())
        });
        if !matches!(said, Some(Ok(()))) {
            // Nobody is there who would find this server.
            let _ = kill_process(getpid(), Signal::TERM);
        }
    }));
    local::end_with_input().into_diagnostic()?;
    Ok(state)
}
