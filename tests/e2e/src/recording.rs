//! What a program says to a server, kept to be said again.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use outboard_wire::handshake::{HELLO_LIMIT, Hello, Preamble, Purpose, VERSION};

use crate::{Program, Server};

/// What one connection of a program sent.
type Sent = Arc<Mutex<Vec<Vec<u8>>>>;

/// Passes connections on to the server and keeps what clients send. Returns its address.
fn recorder(server: &str, sent: &Sent) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address").to_string();
    let (server, sent) = (server.to_owned(), Arc::clone(sent));
    std::thread::spawn(move || {
        for client in listener.incoming().flatten() {
            let upstream = TcpStream::connect(&server).expect("the server listens");
            let index = {
                let mut all = sent.lock().expect("no thread panics with it");
                all.push(Vec::new());
                all.len() - 1
            };
            let (mut from_server, mut to_client) =
                (upstream.try_clone().expect("a clone"), client.try_clone().expect("a clone"));
            std::thread::spawn(move || {
                let _ = std::io::copy(&mut from_server, &mut to_client);
                let _ = to_client.shutdown(Shutdown::Both);
            });
            let (sent, mut from_client, mut to_server) = (Arc::clone(&sent), client, upstream);
            std::thread::spawn(move || {
                let mut piece = [0; 65536];
                while let Ok(count @ 1..) = from_client.read(&mut piece) {
                    sent.lock().expect("no thread panics with it")[index]
                        .extend_from_slice(&piece[..count]);
                    if to_server.write_all(&piece[..count]).is_err() {
                        break;
                    }
                }
                let _ = to_server.shutdown(Shutdown::Both);
            });
        }
    });
    address
}

/// All that a program sent on the connection that carries its commands.
#[derive(Debug, Clone)]
pub struct Recording {
    /// The hello and the commands.
    pub bytes: Vec<u8>,
    /// The length of the hello.
    pub hello: usize,
}

impl Recording {
    /// Runs a program through a server, and returns what it said on each connection, in the order
    /// in which they were made.
    pub fn all(server: &Server, program: &Program) -> Vec<Vec<u8>> {
        let sent = Sent::default();
        let address = recorder(server.address(), &sent);
        program.through_list(&address).expect_success("the program that is recorded");
        sent.lock().expect("no thread panics with it").clone()
    }

    /// Runs a program through a server, over TCP and in the clear, and keeps what it sends.
    pub fn of(server: &Server, program: &str) -> Recording {
        let connections = Recording::all(server, &Program::new(program));
        let session = connections.into_iter().find_map(|bytes| {
            let (head, body) = bytes.split_first_chunk::<{ Preamble::SIZE }>()?;
            let preamble = Preamble::decode(head, HELLO_LIMIT).ok()?;
            let hello =
                Hello::decode(&preamble, body.get(..preamble.len as usize)?, VERSION).ok()?;
            matches!(hello.purpose, Purpose::Session { .. }).then(|| Recording {
                bytes: bytes.clone(),
                hello: Preamble::SIZE + preamble.len as usize,
            })
        });
        session.expect("the program opened a session")
    }
}
