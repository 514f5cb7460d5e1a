//! Bytes of one's own choice for a broker.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use outboard_transport::tls::{Anchor, client_config};
use rustls::pki_types::ServerName;
use rustls::{ClientConnection, StreamOwned};

use crate::PoolBroker;

/// A connection over TLS.
pub type Encrypted = StreamOwned<ClientConnection, TcpStream>;

/// How long the broker may take for whoever is there, whatever others do.
pub const SOON: Duration = Duration::from_secs(10);

/// An encrypted connection that says what it likes.
pub fn encrypted(broker: &PoolBroker) -> Encrypted {
    connected(&broker.address, &broker.fingerprint).expect("the broker listens")
}

/// The same with the broker at an address, if its machine takes the connection in time.
pub fn connected(address: &str, fingerprint: &str) -> Option<Encrypted> {
    let anchor = Anchor::Pinned(fingerprint.parse().expect("it is one"));
    let config = client_config(anchor, None).expect("it needs nothing");
    let name = ServerName::try_from("127.0.0.1").expect("it is a name");
    let stream = TcpStream::connect_timeout(&address.parse().expect("it is one"), SOON).ok()?;
    stream.set_read_timeout(Some(SOON)).expect("it is a time");
    stream.set_write_timeout(Some(SOON)).expect("it is a time");
    Some(StreamOwned::new(ClientConnection::new(config, name).expect("they fit"), stream))
}

/// What the broker answers to these bytes.
pub fn answer(broker: &PoolBroker, bytes: &[u8]) -> String {
    let mut stream = encrypted(broker);
    // It may answer before it has read all.
    let _ = stream.write_all(bytes).and_then(|()| stream.flush());
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}
