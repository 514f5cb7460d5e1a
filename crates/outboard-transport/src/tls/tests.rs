use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use super::keys::Kind;
use super::over::{Tls, certificate};
use super::*;
use crate::blocking::{read_exact, write_all};
use crate::stream::Interest;
use crate::tcp::Tcp;
use crate::transport::Transport;

const PATIENCE: Duration = Duration::from_secs(60);

crate::conformance!(Tls::over(Tcp), "127.0.0.1:0");

/// Both ends, of a client and a server with these settings.
fn pair(
    client: Arc<ClientConfig>,
    server: ServerConfig,
) -> (io::Result<Arc<TlsStream>>, io::Result<Arc<TlsStream>>) {
    let listener = Tcp.listen("127.0.0.1:0").unwrap();
    let address = listener.address().unwrap();
    std::thread::scope(|scope| {
        let deadline = Instant::now() + PATIENCE;
        let there =
            scope.spawn(move || accept(listener.accept().unwrap(), Arc::new(server), deadline));
        let here =
            connect(Tcp.connect(&address, PATIENCE).unwrap(), client, "localhost", b"!", deadline);
        (here, there.join().unwrap())
    })
}

fn open() -> (Arc<TlsStream>, Arc<TlsStream>) {
    let Tls { client, server, .. } = Tls::over(Tcp);
    let (here, there) = pair(client, Arc::into_inner(server).unwrap());
    let (here, there) = (here.unwrap(), there.unwrap());
    read_exact(&*there, &mut [0]).unwrap();
    (here, there)
}

#[test]
fn many_buffers_of_all_sizes_arrive_in_order_while_as_much_comes_back() {
    let (here, there) = open();
    let sizes = [1, 24, 0, 100_000, 16_384, 16_383, 7, 300_000, 65_536, 3];
    let bytes: Vec<u8> = (0..sizes.iter().sum::<usize>()).map(|i| (i * 31 % 251) as u8).collect();
    std::thread::scope(|scope| {
        for (from, to) in [(&here, &there), (&there, &here)] {
            let bytes = &bytes;
            scope.spawn(move || {
                for _ in 0..20 {
                    let mut rest: &[u8] = bytes;
                    let mut parts: Vec<io::IoSlice<'_>> = Vec::new();
                    for size in sizes {
                        let (part, others) = rest.split_at(size);
                        parts.push(io::IoSlice::new(part));
                        rest = others;
                    }
                    let mut left = &mut parts[..];
                    io::IoSlice::advance_slices(&mut left, 0);
                    while !left.is_empty() {
                        match from.write(left) {
                            Ok(count) => io::IoSlice::advance_slices(&mut left, count),
                            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                                from.wait(Interest::WRITE, None, Some(PATIENCE)).unwrap();
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
            scope.spawn(move || {
                let mut received = vec![0; bytes.len()];
                for _ in 0..20 {
                    // A few at first, as a lane's reader does.
                    read_exact(&**to, &mut received[..25]).unwrap();
                    read_exact(&**to, &mut received[25..]).unwrap();
                    assert!(received == *bytes);
                }
            });
        }
    });
}

#[test]
fn another_certificate_is_refused_and_named() {
    let (wanted, _) = certificate("localhost");
    let (shown, key) = certificate("localhost");
    let pinned = client_config(Anchor::Pinned(Fingerprint::of(&wanted)), None).unwrap();
    let server = || server_config(vec![shown.clone()], key.clone_key(), None).unwrap();
    let (here, there) = pair(pinned, server());
    let error = here.unwrap_err().to_string();
    assert!(error.contains(&Fingerprint::of(&shown).to_string()), "{error}");
    assert!(there.is_err(), "the server is told");

    let authority = client_config(Anchor::Authorities(vec![wanted]), None).unwrap();
    assert!(pair(authority, server()).0.is_err());
    let authority = client_config(Anchor::Authorities(vec![shown.clone()]), None).unwrap();
    assert!(pair(authority, server()).0.is_ok());
    let (other_name, key) = certificate("elsewhere");
    let authority = client_config(Anchor::Authorities(vec![other_name.clone()]), None).unwrap();
    let error = pair(authority, server_config(vec![other_name], key, None).unwrap())
        .0
        .unwrap_err()
        .to_string();
    assert!(error.contains("not valid for name"), "{error}");
}

#[test]
fn a_stream_can_be_left_and_encrypted_anew() {
    let (here, there) = open();
    write_all(&*there, b"go on").unwrap();
    let mut said = [0; 5];
    read_exact(&*here, &mut said).unwrap();
    there.say_goodbye();
    let below = here.leave(Instant::now() + PATIENCE).unwrap();
    write_all(&*below, b"in the clear").unwrap();
    let mut clear = [0; 12];
    read_exact(&*there.below, &mut clear).unwrap();
    assert_eq!(&clear, b"in the clear");
}

#[test]
fn an_altered_byte_is_found_out() {
    let Tls { client, server, .. } = Tls::over(Tcp);
    let listener = Tcp.listen("127.0.0.1:0").unwrap();
    let address = listener.address().unwrap();
    let between = TcpListener::bind("127.0.0.1:0").unwrap();
    let middle = between.local_addr().unwrap().to_string();
    // Passes everything on, and changes a byte of what the client says last.
    std::thread::spawn(move || {
        let (client, _) = between.accept().unwrap();
        let server = TcpStream::connect(address).unwrap();
        let (mut from, mut to) = (server.try_clone().unwrap(), client.try_clone().unwrap());
        std::thread::spawn(move || io::copy(&mut from, &mut to));
        let (mut from, mut to) = (client, server);
        let mut bytes = vec![0; 1 << 16];
        while let Ok(count @ 1..) = from.read(&mut bytes) {
            if bytes[..count].len() == 22 + 5 {
                bytes[count - 1] ^= 1;
            }
            if to.write_all(&bytes[..count]).is_err() {
                break;
            }
        }
    });
    let deadline = Instant::now() + PATIENCE;
    std::thread::scope(|scope| {
        let there = scope.spawn(|| {
            let there = accept(listener.accept().unwrap(), server, deadline).unwrap();
            read_exact(&*there, &mut [0]).unwrap();
            read_exact(&*there, &mut [0; 5])
        });
        let here =
            connect(Tcp.connect(&middle, PATIENCE).unwrap(), client, "localhost", b"!", deadline)
                .unwrap();
        std::thread::sleep(Duration::from_millis(50));
        write_all(&*here, b"five5").unwrap();
        let error = there.join().unwrap().unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData, "{error}");
    });
}

#[test]
fn fingerprints_are_read_as_they_are_written() {
    let print = Fingerprint::of(b"a certificate");
    assert_eq!(print.to_string().parse::<Fingerprint>().unwrap(), print);
    let with_colons: Vec<String> = print.0.iter().map(|byte| format!("{byte:02X}")).collect();
    assert_eq!(with_colons.join(":").parse::<Fingerprint>().unwrap(), print);
    for text in ["", "sha256:", "sha256:00", &format!("{print}0"), &"g".repeat(64)] {
        assert!(
            text.parse::<Fingerprint>().unwrap_err().to_string().contains("64 hexadecimal"),
            "{text}"
        );
    }
}

/// A peer that has all of TLS from rustls, and says back what it hears, with a new key before each
/// answer if `renews`. Its settings have this suite alone.
fn echo(suite: rustls::SupportedCipherSuite, renews: bool) -> (String, Arc<ClientConfig>) {
    let (certificate, key) = certificate("localhost");
    let client = client_config(Anchor::Pinned(Fingerprint::of(&certificate)), None).unwrap();
    let mut alone = provider();
    alone.cipher_suites.retain(|other| other.suite() == suite.suite());
    let server = ServerConfig::builder_with_provider(Arc::new(alone))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key)
        .unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        let connection = rustls::ServerConnection::new(Arc::new(server)).unwrap();
        let mut stream = rustls::StreamOwned::new(connection, listener.accept().unwrap().0);
        let mut bytes = vec![0; 50_000];
        while let Ok(count @ 1..) = stream.read(&mut bytes) {
            if renews {
                stream.conn.refresh_traffic_keys().unwrap();
            }
            stream.write_all(&bytes[..count]).unwrap();
            stream.flush().unwrap();
        }
        stream.conn.send_close_notify();
        let _ = stream.flush();
    });
    (address, client)
}

#[test]
fn a_peer_that_has_all_from_rustls_understands_each_suite_and_each_key() {
    let bytes: Vec<u8> = (0..300_000_usize).map(|i| (i * 31 % 251) as u8).collect();
    for suite in provider().cipher_suites {
        for (renews, records_of_a_key) in [(false, None), (true, None), (false, Some(4))] {
            let (address, client) = echo(suite, renews);
            let below = Tcp.connect(&address, PATIENCE).unwrap();
            let here =
                connect(below, client, "localhost", b"!", Instant::now() + PATIENCE).unwrap();
            if let Some(records) = records_of_a_key {
                here.outgoing.lock().unwrap().records_of_a_key = records;
            }
            let mut answer = vec![0; bytes.len()];
            read_exact(&*here, &mut answer[..1]).unwrap();
            std::thread::scope(|scope| {
                scope.spawn(|| (0..5).for_each(|_| write_all(&*here, &bytes).unwrap()));
                for _ in 0..5 {
                    read_exact(&*here, &mut answer).unwrap();
                    assert!(answer == bytes, "{suite:?}, {renews}, {records_of_a_key:?}");
                }
            });
            here.say_goodbye();
            let mut more = [0];
            let end = read_exact(&*here, &mut more).unwrap_err();
            assert_eq!(end.kind(), io::ErrorKind::UnexpectedEof, "{end}");
        }
    }
}

#[test]
fn a_key_is_another_one_after_so_many_records() {
    let (here, there) = open();
    let bytes = vec![9; 100_000];
    for stream in [&here, &there] {
        stream.outgoing.lock().unwrap().records_of_a_key = 3;
    }
    let mut received = vec![0; bytes.len()];
    for (from, to) in [(&here, &there), (&there, &here), (&here, &there)] {
        std::thread::scope(|scope| {
            scope.spawn(|| write_all(&**from, &bytes).unwrap());
            read_exact(&**to, &mut received).unwrap();
        });
        assert!(received == bytes);
        assert!(from.outgoing.lock().unwrap().key_is_used() < 3);
    }
}

/// What a peer that has the keys says wrong, and what is said of it.
#[test]
fn a_peer_that_breaks_the_rules_is_an_error() {
    type Say = fn(&mut outgoing::Outgoing);
    fn record(out: &mut outgoing::Outgoing, kind: Kind, plain: &[u8]) {
        out.record(kind, plain.len(), |room| room.copy_from_slice(plain)).unwrap();
    }
    let cases: [(&str, Say); 6] = [
        ("not encrypted", |out| out.raw(&[22, 3, 3, 0, 5, 24, 0, 0, 1, 0])),
        ("too long", |out| out.raw(&[&[23, 3, 3, 0xff, 0xff][..], &[7; 0xffff]].concat())),
        ("cannot decrypt", |out| out.raw(&[23, 3, 3, 0, 3, 1, 2, 3])),
        ("received fatal alert: HandshakeFailure", |out| record(out, Kind::Alert, &[2, 40])),
        ("cut off", |out| record(out, Kind::Handshake, &[4, 0, 0, 9, 1, 2])),
        ("no place here", |out| record(out, Kind::Handshake, &[24, 0, 0, 1, 2])),
    ];
    // Many bytes are decrypted elsewhere than few.
    let rooms = [8, 1 << 20];
    for ((says, say), room) in cases.iter().flat_map(|case| rooms.map(|room| (case, room))) {
        let (here, there) = open();
        let mut outgoing = here.outgoing.lock().unwrap();
        say(&mut outgoing);
        write_all(&*here.below, outgoing.rest()).unwrap();
        let error = read_exact(&*there, &mut vec![0; room]).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        assert!(error.to_string().contains(says), "{error}");
    }
}
