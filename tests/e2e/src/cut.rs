//! A wire that a test cuts, and joins again.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// How often is looked whether the wire is cut.
const LOOK: Duration = Duration::from_millis(20);

/// Wires to some ports of this machine. While they are cut, no byte gets through either way; those
/// that were under way arrive later.
#[derive(Debug)]
pub struct Wires {
    /// The ends near whoever uses them, in the order of the ports.
    pub ports: Vec<u16>,
    is_cut: Arc<AtomicBool>,
}

impl Wires {
    /// To these ports.
    pub fn to(ports: &[u16]) -> Wires {
        let is_cut = Arc::new(AtomicBool::new(false));
        let near = ports.iter().map(|port| wire(*port, &is_cut)).collect();
        Wires { ports: near, is_cut }
    }

    /// Cuts them, or joins them again.
    pub fn cut(&self, is_cut: bool) {
        self.is_cut.store(is_cut, Ordering::Relaxed);
    }
}

fn wire(port: u16, is_cut: &Arc<AtomicBool>) -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let near = listener.local_addr().expect("an address").port();
    let is_cut = Arc::clone(is_cut);
    std::thread::spawn(move || {
        for one in listener.incoming().map_while(Result::ok) {
            // Who is not there cannot be reached.
            let Ok(other) = TcpStream::connect((Ipv4Addr::LOCALHOST, port)) else { continue };
            for (from, to) in [(&one, &other), (&other, &one)] {
                let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                let is_cut = Arc::clone(&is_cut);
                std::thread::spawn(move || carry(from, to, &is_cut));
            }
        }
    });
    near
}

fn carry(mut from: TcpStream, mut to: TcpStream, is_cut: &AtomicBool) {
    let mut room = [0; 16 << 10];
    let _ = to.set_nodelay(true);
    while let Ok(count @ 1..) = from.read(&mut room) {
        while is_cut.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
        if to.write_all(&room[..count]).is_err() {
            break;
        }
    }
    let _ = to.shutdown(std::net::Shutdown::Both);
    let _ = from.shutdown(std::net::Shutdown::Both);
}
