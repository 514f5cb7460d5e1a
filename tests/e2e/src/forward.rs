//! What a hypervisor does for its virtual machine: forwards what that connects to.

use std::io::IoSlice;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

use outboard_transport::unix::Unix;
use outboard_transport::{Interest, Stream, Transport, Waker, tcp};
use parking_lot::Mutex;

/// Forwards what connects to a port of this machine to a Unix socket. The client takes the port for
/// the server's; the server sees the connections of a virtual machine.
#[derive(Debug)]
pub struct Forwarder {
    /// Where clients connect, HOST:PORT.
    pub address: String,
    under_way: Arc<Mutex<Vec<Arc<dyn Stream>>>>,
}

/// How long a server may take to accept.
const PATIENCE: Duration = Duration::from_secs(20);

impl Forwarder {
    /// To that socket.
    pub fn to(socket: &str) -> Forwarder {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let address = listener.local_addr().expect("an address").to_string();
        let under_way = Arc::new(Mutex::new(Vec::new()));
        let (socket, all) = (socket.to_owned(), Arc::clone(&under_way));
        std::thread::spawn(move || {
            for client in listener.incoming().map_while(Result::ok) {
                let Ok(client) = tcp::from_descriptor(client.into()) else { continue };
                // A hypervisor closes the connection if nobody listens.
                let Ok(server) = Unix.connect(&socket, PATIENCE) else { continue };
                all.lock().extend([Arc::clone(&client), Arc::clone(&server)]);
                for (from, to) in [(Arc::clone(&client), Arc::clone(&server)), (server, client)] {
                    std::thread::spawn(move || carry(&*from, &*to));
                }
            }
        });
        Forwarder { address, under_way }
    }

    /// Ends all connections that are under way, as a reset of the device does; how many there were.
    pub fn cut(&self) -> usize {
        let ended: Vec<_> = self.under_way.lock().drain(..).collect();
        ended.iter().for_each(|stream| _ = stream.shutdown());
        ended.len() / 2
    }
}

fn carry(from: &dyn Stream, to: &dyn Stream) {
    let mut room = vec![0; 256 << 10];
    let ready = |stream: &dyn Stream, interest| stream.wait(interest, None::<&Waker>, None).is_ok();
    'all: while ready(from, Interest::READ) {
        let mut bytes = match from.read(&mut room) {
            Ok(0) => break,
            Ok(count) => &room[..count],
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => continue,
            Err(_) => break,
        };
        while !bytes.is_empty() && ready(to, Interest::WRITE) {
            match to.write(&[IoSlice::new(bytes)]) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {}
                Err(_) => break 'all,
            }
        }
    }
    let _ = (from.shutdown(), to.shutdown());
}
