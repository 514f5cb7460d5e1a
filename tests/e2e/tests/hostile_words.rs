//! Somebody in between, or a server that is none, speaks before a connection is encrypted: it
//! controls no terminal, is not believed, and ends no session.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::process::Output;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use outboard_e2e::{Driver, Folder, Program, Server, command, one_line, within};
use outboard_wire::handshake::{Refusal, RefusalCode, VERSION, Waiting};

/// What somebody would have a terminal do, and a reader believe.
const SENTENCE: &str = "\u{1b}]0;owned\u{7}\u{1b}[2Jit is all\u{9b}1m\r right \u{202e}now";
const SOON: Duration = Duration::from_secs(20);

/// Answers every connection with these bytes. Returns its address.
fn says(answer: Vec<u8>) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = listener.local_addr().expect("its address").to_string();
    std::thread::spawn(move || {
        for mut client in listener.incoming().flatten() {
            // Whether all of a hello has come is of no interest.
            let _ = client.read(&mut [0; 4096]);
            let _ = client.write_all(&answer);
            let _ = client.shutdown(Shutdown::Write);
        }
    });
    address
}

fn refusal(code: RefusalCode) -> Vec<u8> {
    Refusal { code, sentence: SENTENCE.to_owned() }.encode(VERSION)
}

/// What `outboard devices` says to whoever listens there.
fn devices(address: &str, env: &[(&str, &str)]) -> String {
    let output: Output = command()
        .args(["devices", "--server", address])
        .envs(env.iter().copied())
        .output()
        .expect("outboard starts");
    assert!(!output.status.success());
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

fn assert_plain(text: &str) {
    let odd = |c: char| {
        c != '\n'
            && (c.is_control() || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'))
    };
    assert!(!text.contains(odd), "{text:?}");
}

#[test]
fn what_a_stranger_says_controls_no_terminal_and_is_nobodys_word() {
    let pinned = ("OUTBOARD_TLS_FINGERPRINT", "00".repeat(32));
    let pinned = [(pinned.0, pinned.1.as_str())];
    for code in [RefusalCode::NoDevice, RefusalCode::SessionOver, RefusalCode::Other(999)] {
        let address = says(refusal(code));
        let open = devices(&address, &[]);
        assert!(open.contains("right"), "{open}");
        assert_plain(&open);
        // Who wants a certain server has not heard it say that.
        let secured = devices(&address, &pinned);
        assert!(one_line(secured.as_bytes()).contains("somebody on the way"), "{secured}");
        assert_plain(&secured);
    }
    // Nobody waits in the queue of a stranger.
    let waiting = Waiting { place: 1, sentence: SENTENCE.to_owned() }.encode(VERSION);
    assert_plain(&devices(&says(waiting.repeat(50)), &pinned));
    assert_plain(&devices(&says(waiting.repeat(50)), &[]));
}

/// Passes connections on, or, when it is told to, refuses them in the clear.
struct Between {
    address: String,
    refuses: Arc<AtomicBool>,
    refused: Arc<AtomicUsize>,
    streams: Arc<Mutex<Vec<TcpStream>>>,
}

impl Between {
    fn new(server: &str) -> Between {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("its address").to_string();
        let (refuses, streams) =
            (Arc::new(AtomicBool::new(false)), Arc::new(Mutex::new(Vec::new())));
        let refused = Arc::new(AtomicUsize::new(0));
        let (server, said, kept) = (server.to_owned(), Arc::clone(&refuses), Arc::clone(&streams));
        let counted = Arc::clone(&refused);
        std::thread::spawn(move || {
            for mut client in listener.incoming().flatten() {
                if said.load(Ordering::SeqCst) {
                    let _ = client.write_all(&refusal(RefusalCode::SessionOver));
                    let _ = client.shutdown(Shutdown::Write);
                    counted.fetch_add(1, Ordering::SeqCst);
                    continue;
                }
                let Ok(upstream) = TcpStream::connect(&server) else { continue };
                for (from, to) in [(&client, &upstream), (&upstream, &client)] {
                    let (mut from, mut to) =
                        (from.try_clone().expect("a clone"), to.try_clone().expect("a clone"));
                    std::thread::spawn(move || {
                        let _ = std::io::copy(&mut from, &mut to);
                        let _ = to.shutdown(Shutdown::Both);
                    });
                }
                kept.lock().expect("no thread panics with it").extend([client, upstream]);
            }
        });
        Between { address, refuses, refused, streams }
    }

    fn cut(&self, refuses: bool) {
        self.refuses.store(refuses, Ordering::SeqCst);
        for stream in self.streams.lock().expect("no thread panics with it").drain(..) {
            let _ = stream.shutdown(Shutdown::Both);
        }
    }
}

#[test]
fn a_refusal_that_nobody_is_known_to_have_said_ends_no_session() {
    let folder = Folder::create();
    let state = folder.path("state");
    let server = Server::start_with(
        &["--driver", Driver::chosen().name(), "--tls", "on", "--state", &state],
        &[],
    );
    let told = command()
        .args(["token", "fingerprint", "--state", &state])
        .output()
        .expect("outboard starts");
    let fingerprint = String::from_utf8_lossy(&told.stdout).trim().to_owned();
    let between = Between::new(server.address());
    let mut program = Program::new("endless")
        .env("OUTBOARD_TLS_FINGERPRINT", &fingerprint)
        .env("OUTBOARD_TLS", "on")
        .env("OUTBOARD_LOG", "1")
        .start_through_list(&between.address);
    program.wait_for_line("running");
    between.cut(true);
    // Who comes again has read what was said before.
    let was_refused = within(SOON, || between.refused.load(Ordering::SeqCst) >= 2);
    assert!(was_refused, "the client does not come again");
    between.cut(false);
    let on = within(SOON, || server.log().contains("goes on over a new connection"));
    let ended = program.has_ended();
    program.kill();
    assert!(on && !ended, "the session went on");
}
