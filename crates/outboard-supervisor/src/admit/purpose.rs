//! Acts on the purpose of a client's connection.

use std::io;

use outboard_wire::handshake::who::WHO;
use outboard_wire::handshake::{Extensions, Hello, VERSION, Welcome};
use tokio::io::AsyncWriteExt;
use tokio::time::{Instant, timeout};

use super::client::{Checked, Devices, Heard, Wish};
use super::failure::Failure;
use super::order::{Order, start};
use crate::peer::{Connection, Peer, too_many};
use crate::secure;
use crate::supervisor::Supervisor;
use outboard_auth::hellos::Seat;

/// Does what a client asks for in its hello.
pub(super) async fn serve(
    supervisor: &Supervisor,
    hello: Hello,
    stream: &mut impl Connection,
    peer: Peer,
    seat: &mut Option<Seat>,
) -> Result<(), Failure> {
    let stranger = match Heard::new(hello, stream, peer).check(supervisor)? {
        Checked::Further(further) => return further.join(supervisor, stream),
        Checked::Stranger(stranger) => stranger,
    };
    let (known, wish) = stranger.authenticate(supervisor, seat)?;
    let order = match wish {
        Wish::Session(devices) => {
            let came = Instant::now();
            let admitted = known.admit(supervisor, devices, stream).await?;
            supervisor.tally.waited(came.elapsed());
            Order::session(admitted)
        }
        Wish::Library { file } => {
            return crate::library::hand_out(supervisor, &file, stream, peer).await;
        }
        Wish::Management(devices) => {
            let devices = known.find(supervisor, devices).await?;
            Order::management(known, devices, supervisor.warm.last_snapshot())
        }
        Wish::Who => {
            let mut more = Extensions::default();
            more.set(WHO, &known.you(supervisor));
            return tell(supervisor, Vec::new(), more, stream, peer).await;
        }
        Wish::Probe { reserve } => {
            if let Some(wanted) = reserve {
                let devices = known.find(supervisor, wanted).await?;
                known.reserve(supervisor, &devices, stream).await?;
            }
            let devices = known.find(supervisor, Vec::new()).await?;
            if !devices.parts.is_empty() {
                // Who has a lease is shown its devices, as it has them.
                Order::probe(known, devices, supervisor.warm.last_snapshot())
            } else if known.has_adapters() {
                // What adapters this machine has, only a worker finds out.
                Order::probe(known, Devices::default(), supervisor.warm.snapshot())
            } else if let Some(snapshot) = supervisor.warm.snapshot() {
                return tell(supervisor, snapshot, Extensions::default(), stream, peer).await;
            } else {
                Order::probe(known, Devices::default(), None)
            }
        }
    };
    if let Some(secure) = start(supervisor, &order, stream.for_a_worker()).await? {
        timeout(supervisor.config.hello_timeout, secure::send_on(stream, &secure))
            .await
            .map_err(io::Error::from)??;
    }
    Ok(())
}

/// Welcomes a client that only wants to know of the platform, or of itself.
async fn tell(
    supervisor: &Supervisor,
    snapshot: Vec<u8>,
    more: Extensions,
    stream: &mut impl Connection,
    peer: Peer,
) -> Result<(), Failure> {
    let seat =
        supervisor.hellos.enter(peer.origin()).ok_or_else(|| Failure::Refused(too_many()))?;
    let (software, lanes) = (env!("CARGO_PKG_VERSION").to_owned(), supervisor.config.lanes);
    let local = supervisor.local.clone();
    let welcome =
        Welcome { version: VERSION, software, session: 0, key: 0, lanes, snapshot, local, more }
            .encode();
    // The client need not read it, and makes room for others if it does not.
    let tell = async {
        stream.write_all(&welcome).await?;
        stream.flush().await
    };
    tokio::select! {
        biased;
        _ = timeout(supervisor.config.hello_timeout, tell) => {}
        () = seat.is_wanted() => {}
    }
    Ok(())
}
