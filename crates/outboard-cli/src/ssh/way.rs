//! The way to a server behind ssh: straight, if one opens soon, or through ssh's connection.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use outboard_client::invitation::{Invitation, address};
use outboard_transport::tls::{self, Anchor};
use outboard_transport::{Endpoint, Transport, tcp::Tcp};
use outboard_wire::Code;

use super::connection::Connection;
use crate::failure::Failure;

/// How long a way without ssh may take to open.
const SOON: Duration = Duration::from_millis(200);
/// How long a server may take to prove that it is the one.
const PROOF: Duration = Duration::from_secs(2);
/// The same through ssh.
const PATIENCE: Duration = Duration::from_secs(20);

/// Where this machine's programs reach the server, and whether ssh is not on that way.
pub(super) fn choose(
    connection: &Connection,
    told: &Invitation,
    direct: bool,
) -> Result<(Endpoint, bool), Failure> {
    if direct && leads_to(told, &told.server, SOON, PROOF) {
        return Ok((told.server.clone(), true));
    }
    // It is another machine's word.
    let Endpoint::Tcp(_) = &told.server else {
        let message = format!(
            "the server at {} has no address that ssh could lead to",
            connection.destination
        );
        return Err(Failure::new(
            Code::ServerStart,
            message,
            "use the same release here and there",
        ));
    };
    let at: SocketAddr = connection.forward(&told.server.to_string())?;
    let through = address(&at.to_string());
    match through {
        Some(through) if leads_to(told, &through, PATIENCE, PATIENCE) => Ok((through, false)),
        _ => {
            let there = &connection.destination;
            let message = format!(
                "the server at {there} runs, and neither a connection to {} nor one through ssh reaches it",
                told.server
            );
            let help = "its sshd must forward ports (AllowTcpForwarding, PermitOpen), or its firewall let the port through";
            Err(Failure::new(Code::SshFailed, message, help))
        }
    }
}

/// Whether the server answers there, and nobody else.
fn leads_to(told: &Invitation, at: &Endpoint, soon: Duration, proof: Duration) -> bool {
    let Endpoint::Tcp(address) = at else { return false };
    let Ok(stream) = Tcp.connect(&at.to_string(), soon) else { return false };
    let Ok(config) = tls::client_config(Anchor::Pinned(told.fingerprint), None) else {
        return false;
    };
    tls::connect(stream, config, &address.host, &[], Instant::now() + proof).is_ok()
}
