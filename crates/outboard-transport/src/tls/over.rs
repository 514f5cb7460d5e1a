//! TLS as a transport, for the tests of what lies below it, too.

use std::sync::Mutex;
use std::sync::mpsc::{Receiver, channel};
use std::time::Duration;

use rustls::pki_types::{CertificateDer, PrivateKeyDer};

use super::*;
use crate::transport::{Listener, Transport};

const PATIENCE: Duration = Duration::from_secs(60);

/// A certificate for `name` of its own making.
pub(super) fn certificate(name: &str) -> (CertificateDer<'static>, PrivateKeyDer<'static>) {
    let made = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
    (made.cert.into(), PrivateKeyDer::Pkcs8(made.signing_key.serialize_der().into()))
}

/// TLS over another transport, both sides in this process.
#[derive(Debug)]
pub(crate) struct Tls<T> {
    below: T,
    pub(super) client: Arc<ClientConfig>,
    pub(super) server: Arc<ServerConfig>,
}

/// Shakes hands as soon as a client is there: in the suite one thread connects and accepts only
/// then.
#[derive(Debug)]
struct TlsServer {
    address: String,
    shaken: Mutex<Receiver<Arc<TlsStream>>>,
}

impl<T> Tls<T> {
    pub(crate) fn over(below: T) -> Tls<T> {
        let (certificate, key) = certificate("localhost");
        let anchor = Anchor::Pinned(Fingerprint::of(&certificate));
        Tls {
            below,
            client: client_config(anchor, None).unwrap(),
            server: Arc::new(server_config(vec![certificate], key, None).unwrap()),
        }
    }
}

impl<T: Transport> Transport for Tls<T> {
    fn name(&self) -> &'static str {
        "tls"
    }

    fn connect(&self, address: &str, timeout: Duration) -> io::Result<Arc<dyn Stream>> {
        let below = self.below.connect(address, timeout)?;
        Ok(connect(below, Arc::clone(&self.client), "localhost", &[], Instant::now() + PATIENCE)?)
    }

    fn listen(&self, address: &str) -> io::Result<Box<dyn Listener>> {
        let (below, config) = (self.below.listen(address)?, Arc::clone(&self.server));
        let address = below.address()?;
        let (send, shaken) = channel();
        std::thread::spawn(move || {
            while let Ok(stream) = below.accept() {
                let stream =
                    accept(stream, Arc::clone(&config), Instant::now() + PATIENCE).unwrap();
                if send.send(stream).is_err() {
                    break;
                }
            }
        });
        Ok(Box::new(TlsServer { address, shaken: shaken.into() }))
    }
}

impl Listener for TlsServer {
    fn accept(&self) -> io::Result<Arc<dyn Stream>> {
        Ok(self.shaken.lock().unwrap().recv_timeout(PATIENCE).unwrap())
    }

    fn address(&self) -> io::Result<String> {
        Ok(self.address.clone())
    }
}
