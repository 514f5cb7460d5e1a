//! Traces of sessions: taken by an administrator, and sent to a collector, which is a small one of
//! the test's own.

use outboard_e2e::{Folder, Program, Running, Server, outboard, within};
use serde_json::Value;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);
/// A job's trace, and the span in it that starts the program.
const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
const PARENT: &str = "b7ad6b7169203331";

/// A span, as far as the tests look.
#[derive(Debug, Clone, Default)]
struct Span {
    trace: String,
    id: String,
    parent: String,
    name: String,
    begun: u64,
    ended: u64,
    attributes: Vec<(String, String)>,
}

impl Span {
    fn attribute(&self, name: &str) -> &str {
        self.attributes.iter().find(|(found, _)| found == name).map_or("", |(_, value)| value)
    }
}

/// The fields of a message of protocol buffers: number, number value, bytes.
fn fields(mut bytes: &[u8]) -> Vec<(u64, u64, &[u8])> {
    fn varint(bytes: &mut &[u8]) -> u64 {
        let mut value = 0;
        for shift in (0..64).step_by(7) {
            let (first, rest) = bytes.split_first().expect("a number ends");
            *bytes = rest;
            value |= u64::from(first & 0x7f) << shift;
            if first & 0x80 == 0 {
                break;
            }
        }
        value
    }
    let mut found = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let len = match key & 7 {
            0 => {
                found.push((key >> 3, varint(&mut bytes), &bytes[..0]));
                continue;
            }
            1 => 8,
            2 => varint(&mut bytes) as usize,
            5 => 4,
            other => panic!("there is no wire type {other}"),
        };
        let (value, rest) = bytes.split_at(len);
        let number =
            value.iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte));
        found.push((key >> 3, number, value));
        bytes = rest;
    }
    found
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// The spans of an `ExportTraceServiceRequest`, read by the field numbers of OTLP.
fn spans(request: &[u8]) -> Vec<Span> {
    let inside = |bytes: &[u8], number: u64| -> Vec<Vec<u8>> {
        fields(bytes)
            .into_iter()
            .filter(|field| field.0 == number)
            .map(|field| field.2.to_vec())
            .collect()
    };
    let resources = inside(request, 1);
    let scopes = resources.iter().flat_map(|resource| inside(resource, 2)).collect::<Vec<_>>();
    let encoded = scopes.iter().flat_map(|scope| inside(scope, 2)).collect::<Vec<_>>();
    let read = |bytes: &Vec<u8>| {
        let mut span = Span::default();
        for (number, value, bytes) in fields(bytes) {
            match number {
                1 => span.trace = hex(bytes),
                2 => span.id = hex(bytes),
                4 => span.parent = hex(bytes),
                5 => span.name = text(bytes),
                7 => span.begun = value,
                8 => span.ended = value,
                9 => {
                    let name = inside(bytes, 1).first().map(|name| text(name)).unwrap_or_default();
                    let value = inside(bytes, 2).first().cloned().unwrap_or_default();
                    let value = fields(&value).first().map(|(kind, number, bytes)| match kind {
                        1 => text(bytes),
                        _ => number.to_string(),
                    });
                    span.attributes.push((name, value.unwrap_or_default()));
                }
                _ => {}
            }
        }
        span
    };
    encoded.iter().map(read).collect()
}

/// Takes what a server sends, and answers that all is well.
fn collector() -> (String, Arc<Mutex<Vec<Span>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    let all = Arc::new(Mutex::new(Vec::new()));
    let found = Arc::clone(&all);
    std::thread::spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let request = request(stream);
            found.lock().expect("no thread panics with it").extend(spans(&request));
        }
    });
    (address, all)
}

/// The body of one request.
fn request(mut stream: TcpStream) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut some = [0; 4096];
    loop {
        if let Some(head) = bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            let said = String::from_utf8_lossy(&bytes[..head]).to_ascii_lowercase();
            assert!(said.starts_with("post /v1/traces http/1.1"), "{said}");
            assert!(said.contains("content-type: application/x-protobuf"), "{said}");
            let length = said.lines().find_map(|line| line.strip_prefix("content-length: "));
            let length: usize = length.expect("a length").trim().parse().expect("a number");
            if bytes.len() >= head + 4 + length {
                let _ = stream.write_all(
                    b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
                );
                return bytes[head + 4..].to_vec();
            }
        }
        match stream.read(&mut some) {
            Ok(count) if count > 0 => bytes.extend(&some[..count]),
            _ => return Vec::new(),
        }
    }
}

#[test]
fn a_jobs_trace_goes_on_in_its_session() {
    let (address, all) = collector();
    let server = Server::start_with(&["--driver", "cpu", "--traces", &address], &[]);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    Program::new("big_copy")
        .env("TRACEPARENT", &parent)
        .through(&server)
        .expect_success("big_copy");
    let found = || all.lock().expect("no thread panics with it").clone();
    assert!(
        within(PATIENCE, || found().iter().any(|span| span.name == "session")),
        "{:?}",
        found()
    );
    let found = found();
    let session = found.iter().find(|span| span.name == "session").expect("as seen").clone();
    assert_eq!(
        (session.trace.as_str(), session.parent.as_str()),
        (TRACE, PARENT),
        "it is part of the job's"
    );
    assert!(session.attribute("outboard.client").starts_with("big_copy ("), "{session:?}");
    assert!(
        !session.attribute("outboard.owner").is_empty()
            && session.attribute("outboard.transport") == "tcp"
    );
    for name in ["handshake", "module", "wait", "copy"] {
        let span = found
            .iter()
            .find(|span| span.name == name)
            .unwrap_or_else(|| panic!("no {name} in {found:?}"));
        assert_eq!((&span.trace, &span.parent), (&session.trace, &session.id), "{span:?}");
        assert!(
            span.begun >= session.begun && span.ended <= session.ended && span.begun <= span.ended,
            "{span:?}"
        );
    }
    let copies = found.iter().filter(|span| span.name == "copy");
    for direction in ["to_device", "from_device"] {
        let sum: u64 = copies
            .clone()
            .filter(|span| span.attribute("outboard.direction") == direction)
            .map(|span| span.attribute("outboard.bytes").parse::<u64>().expect("a number"))
            .sum();
        assert!(sum > 1 << 20, "{direction}: {sum} bytes");
    }
    let module = found.iter().find(|span| span.name == "module").expect("as seen");
    assert!(module.attribute("outboard.command").contains('_'), "{module:?}");
    let mut ids: Vec<&String> = found.iter().map(|span| &span.id).collect();
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), found.len(), "every span has a number of its own");
    // Without a parent, a session is a trace of its own.
    Program::new("saxpy").through(&server).expect_success("saxpy");
    let roots = || {
        all.lock()
            .expect("no thread panics with it")
            .iter()
            .filter(|span| span.name == "session")
            .count()
    };
    assert!(within(PATIENCE, || roots() == 2));
    let other = all
        .lock()
        .expect("no thread panics with it")
        .iter()
        .rfind(|span| span.name == "session")
        .cloned();
    let other = other.expect("as counted");
    assert!(
        other.parent.is_empty() && other.trace != TRACE && other.trace.len() == 32,
        "{other:?}"
    );
}

fn endless(server: &Server) -> Running {
    let mut running = Program::new("endless").arg("1").start_through(server);
    running.wait_for_line("running");
    running
}

#[test]
fn one_session_is_traced_on_demand() {
    let server = Server::start();
    let _neighbour = endless(&server);
    let running = endless(&server);
    let client = format!("({})", running.id());
    let output = outboard(&["sessions", "--json", "--server", server.address()]);
    let listing: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let mut sessions = listing["sessions"].as_array().expect("sessions").iter();
    let session = sessions
        .find(|session| session["client"].as_str().is_some_and(|name| name.ends_with(&client)));
    let id = session.expect("it is listed")["id"].as_str().expect("a number").to_owned();
    let folder = Folder::create();
    let file = folder.path("trace.json");
    for _ in 0..2 {
        let output = outboard(&[
            "trace",
            &id[..8],
            "--seconds",
            "0.5",
            "-o",
            &file,
            "--server",
            server.address(),
        ]);
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let trace: Value =
            serde_json::from_slice(&std::fs::read(&file).expect("it was written")).expect("JSON");
        let resources = trace["resourceSpans"].as_array().expect("resources");
        let spans: Vec<&Value> = resources
            .iter()
            .flat_map(|resource| resource["scopeSpans"][0]["spans"].as_array().expect("spans"))
            .collect();
        let root =
            spans.iter().find(|span| span["name"] == "session").expect("the session's own span");
        let waits = spans.iter().filter(|span| span["name"] == "wait");
        assert!(waits.clone().count() >= 2, "the program waits again and again: {trace}");
        assert!(waits.clone().all(
            |span| span["parentSpanId"] == root["spanId"] && span["traceId"] == root["traceId"]
        ));
        let said = root["attributes"].to_string();
        assert!(said.contains(&client) && said.contains(&id), "{said}");
    }
    let output = outboard(&["trace", "abcd", "--server", server.address()]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("OB0903"));
}

#[test]
fn a_collector_that_is_not_there_is_told_of_once_and_harms_nobody() {
    let server = Server::start_with(&["--driver", "cpu", "--traces", "http://127.0.0.1:1"], &[]);
    for _ in 0..2 {
        Program::new("saxpy").through(&server).expect_success("saxpy");
    }
    let complaints = || server.log().matches("traces do not reach the collector").count();
    assert!(within(PATIENCE, || complaints() == 1), "{}", server.log());
    let output = outboard(&[
        "serve",
        "--driver",
        "cpu",
        "--listen",
        "127.0.0.1:0",
        "--traces",
        "https://collector",
    ]);
    assert!(
        !output.status.success()
            && String::from_utf8_lossy(&output.stderr).contains("http://HOST:PORT")
    );
}
