//! A broker that only hears beats, and answers what a test says.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use outboard_pool::api::{Beat, BeatAnswer};
use outboard_transport::tls::{Fingerprint, server_config};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

/// The most bytes of a request that it reads.
const LONGEST: usize = 1 << 20;

/// How it answers.
#[derive(Clone, Debug)]
pub enum Manner {
    /// As a broker does.
    Answers,
    /// With this status and body.
    Says(u16, Vec<u8>),
    /// Not at all, and keeps the connection.
    IsSilent,
}

/// What it has heard, and what it says.
#[derive(Debug)]
pub struct Talk {
    /// The last beat, and how the server has shown who it is.
    pub heard: Option<(String, Beat)>,
    /// How many there were.
    pub beats: usize,
    /// What it answers.
    pub answer: BeatAnswer,
    /// How.
    pub manner: Manner,
}

/// A broker at a free port of this machine.
#[derive(Debug)]
pub struct Broker {
    /// Where it listens.
    pub url: String,
    /// The fingerprint of its certificate.
    pub fingerprint: String,
    talk: Arc<Mutex<Talk>>,
}

impl Broker {
    /// One that has these keys.
    pub fn start(keys: Vec<String>) -> Broker {
        let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).expect("made");
        let certificate = made.cert.der().clone();
        let fingerprint = Fingerprint::of(&certificate).to_string();
        let key = PrivateKeyDer::from(PrivatePkcs8KeyDer::from(made.signing_key.serialize_der()));
        let config = server_config(vec![certificate], key, None).expect("they fit");
        let answer = BeatAnswer { keys, next_ms: 200, ..BeatAnswer::default() };
        let talk = Talk { heard: None, beats: 0, answer, manner: Manner::Answers };
        let talk = Arc::new(Mutex::new(talk));
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let (config, heard) = (Arc::new(config), Arc::clone(&talk));
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let (config, talk) = (Arc::clone(&config), Arc::clone(&heard));
                std::thread::spawn(move || {
                    // Whoever goes away is gone.
                    let _ = serve(stream, config, &talk);
                });
            }
        });
        Broker { url, fingerprint, talk }
    }

    /// What it has heard, and what it says.
    pub fn talk(&self) -> MutexGuard<'_, Talk> {
        self.talk.lock().expect("no thread panics with it")
    }

    /// The arguments of a server that belongs to it.
    pub fn arguments(&self) -> [&str; 4] {
        ["--pool", &self.url, "--pool-fingerprint", &self.fingerprint]
    }
}

fn serve(
    stream: std::net::TcpStream,
    config: Arc<ServerConfig>,
    talk: &Mutex<Talk>,
) -> std::io::Result<()> {
    let connection = ServerConnection::new(config).map_err(std::io::Error::other)?;
    let mut stream = StreamOwned::new(connection, stream);
    loop {
        let (head, body) = request(&mut stream)?;
        let header = |name: &str| {
            let line = head.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case(name).then(|| value.trim().to_owned())
            });
            line.unwrap_or_default()
        };
        assert!(head.starts_with("POST /v1/beat HTTP/1.1"), "{head}");
        let beat: Beat = serde_json::from_slice(&body).expect("a beat");
        beat.check().expect("a good one");
        let (status, said) = {
            let mut talk = talk.lock().expect("no thread panics with it");
            talk.beats += 1;
            talk.heard = Some((header("authorization"), beat));
            match &talk.manner {
                Manner::Answers => {
                    (200, serde_json::to_vec(&talk.answer).expect("it has a form in JSON"))
                }
                Manner::Says(status, body) => (*status, body.clone()),
                Manner::IsSilent => {
                    drop(talk);
                    std::thread::sleep(Duration::from_secs(600));
                    return Ok(());
                }
            }
        };
        let length = said.len();
        write!(stream, "HTTP/1.1 {status} X\r\ncontent-length: {length}\r\n\r\n")?;
        stream.write_all(&said)?;
        stream.flush()?;
    }
}

/// The head of a request, and its body.
fn request(stream: &mut impl Read) -> std::io::Result<(String, Vec<u8>)> {
    let mut read = Vec::new();
    let mut room = [0; 4096];
    loop {
        let end = read.windows(4).position(|four| four == b"\r\n\r\n");
        if let Some(end) = end {
            let head = String::from_utf8_lossy(&read[..end]).into_owned();
            let length = head.lines().find_map(|line| {
                let (key, value) = line.split_once(':')?;
                key.eq_ignore_ascii_case("content-length").then(|| value.trim().parse().ok())?
            });
            let wanted = end + 4 + length.unwrap_or(0);
            if read.len() >= wanted {
                return Ok((head, read[end + 4..wanted].to_vec()));
            }
        }
        let count = stream.read(&mut room)?;
        if count == 0 || read.len() > LONGEST {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        read.extend_from_slice(&room[..count]);
    }
}
