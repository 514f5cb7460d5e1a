//! Strangers and members of a pool who mean no good: the broker serves the others as ever.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use outboard_broker_client::Method;
use outboard_e2e::raw_https::{SOON, answer, encrypted};
use outboard_e2e::{PlayedServer, PoolBroker};
use outboard_pool::api::PoolView;
use outboard_pool::words::Condition;

fn pool() -> (PoolBroker, PlayedServer, String) {
    let broker = PoolBroker::start(&[]);
    let server = PlayedServer::start(&broker, &broker.token("server", "gpu1"), "gpu1", 1);
    let client = broker.token("client", "ada");
    (broker, server, client)
}

fn post(path: &str, token: &str, body: &str) -> Vec<u8> {
    let length = body.len();
    format!(
        "POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\n\
         Content-Length: {length}\r\n\r\n{body}"
    )
    .into_bytes()
}

fn serves(broker: &PoolBroker, token: &str) {
    let begin = Instant::now();
    let view: PoolView = broker.for_token(token).ask(Method::GET, "/v1/pool").unwrap();
    assert_eq!(view.servers.len(), 1);
    assert!(begin.elapsed() < SOON, "others wait for {:?}", begin.elapsed());
}

#[test]
fn nonsense_gets_a_sentence() {
    let (broker, _server, client) = pool();
    let server = broker.token("server", "gpu2");
    // Without encryption, and with.
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 4096], b"\x16\x03\x01\xff\xff"] {
        let mut stream = TcpStream::connect(&broker.address).unwrap();
        stream.set_read_timeout(Some(SOON)).unwrap();
        stream.write_all(bytes).unwrap();
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(!String::from_utf8_lossy(&said).contains("HTTP"), "nobody gets an answer so");
    }
    let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(100_000));
    for (bytes, wanted) in [
        (b"nonsense\r\n\r\n".to_vec(), "400"),
        (long.into_bytes(), "4"),
        (b"GET /v1/pool HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n".to_vec(), "401"),
    ] {
        let said = answer(&broker, &bytes);
        assert!(said.starts_with(&format!("HTTP/1.1 {wanted}")), "{wanted}: {said}");
    }
    let nested = format!("{}1{}", "[".repeat(100_000 / 4), "]".repeat(100_000 / 4));
    let good = r#"{"request":{"owner":"ada","group":"everybody","devices":1,"memory_bytes":1,"usage":"exclusive",
        "model":null,"capability":null,"servers":"any","near":null,"may_share":"nobody","priority":0,
        "wait_seconds":0},"client_key":"KEY"}"#;
    let key = "ab".repeat(32);
    let keyed = |text: &str| text.replace("KEY", &key);
    for (body, part) in [
        (String::new(), "no JSON"),
        ("{".into(), "no JSON"),
        (nested, "the body is not right"),
        ("{}".into(), "missing field"),
        (good.to_owned(), "64 hexadecimal digits"),
        (keyed(good).replace("\"devices\":1", "\"devices\":0"), "ask for 1 to 4096 devices"),
        (keyed(good).replace("\"devices\":1", "\"devices\":-1"), "the body is not right"),
        (keyed(good).replace("\"wait_seconds\"", "\"is_admin\":true,\"wait_seconds\""), "is_admin"),
        (keyed(good).replace("\"ada\"", "\"a\\u001b[2J\""), "letters, digits"),
        (
            keyed(good).replace("\"ada\"", &format!("\"{}\"", "a".repeat(300_000))),
            "at most 65536 bytes",
        ),
        (
            keyed(good).replace(
                "\"nobody\"",
                &format!("{{\"keys\":[{}]}}", vec![format!("\"{key}\""); 65].join(",")),
            ),
            "65 keys are to share",
        ),
    ] {
        let said = answer(&broker, &post("/v1/requests", &client, &body));
        assert!(said.starts_with("HTTP/1.1 400") && said.contains(part), "{part}: {said}");
    }
    let beat = |address: &str, devices: usize| {
        let device = |at: usize| {
            format!(
                r#"{{"uuid":"G{at}","model":"m","memory_bytes":1,"capability":{{"major":9,"minor":0}},"nvlink":[],"load_percent":0,"health":"well"}}"#
            )
        };
        let devices = (0..devices).map(device).collect::<Vec<_>>().join(",");
        format!(
            r#"{{"server":{{"name":"gpu2","driver":"1","labels":{{}},"condition":"ready","devices":[{devices}]}},
            "address":"{address}","fingerprint":null,"release":"","in_use":[]}}"#
        )
    };
    for (body, part) in [
        (beat("gpu2:1", 65), "at most 64"),
        (beat("gpu2:1,evil:1", 1), "HOST:PORT"),
        (beat("gpu2:1/0", 1), "HOST:PORT"),
        (
            beat("gpu2:1", 1)
                .replace("\"memory_bytes\":1", "\"memory_bytes\":18446744073709551615"),
            "cannot have",
        ),
        (beat("gpu2:1", 1).replace("null", "\"sha256:x\""), "fingerprint"),
        (" ".repeat(3 << 20), "at most 262144 bytes"),
    ] {
        let said = answer(&broker, &post("/v1/beat", &server, &body));
        assert!(said.starts_with("HTTP/1.1 400") && said.contains(part), "{part}: {said}");
    }
    let alike = format!(
        "GET /v1/requests/{} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {client}\r\n\r\n",
        "9".repeat(40)
    );
    assert!(answer(&broker, alike.as_bytes()).starts_with("HTTP/1.1 404"));
    serves(&broker, &client);
}

#[test]
fn strangers_that_say_nothing_keep_nobody_out() {
    let (broker, _server, client) = pool();
    let mut strangers = Vec::new();
    for number in 0..1500 {
        match TcpStream::connect(&broker.address) {
            Ok(mut stream) => {
                // Some begin to say something.
                if number % 3 == 0 {
                    let _ = stream.write_all(b"\x16\x03\x01");
                }
                strangers.push(stream);
            }
            Err(error) => panic!("connection {number}: {error}"),
        }
    }
    serves(&broker, &client);
    // So do those that encrypt and then wait.
    let _half: Vec<_> = (0..50)
        .map(|_| {
            let mut stream = encrypted(&broker);
            let _ = stream.write_all(b"GET /v1/po").and_then(|()| stream.flush());
            stream
        })
        .collect();
    serves(&broker, &client);
    drop(strangers);
}

#[test]
fn who_reads_nothing_and_asks_much_keeps_nobody_out() {
    let (broker, _server, client) = pool();
    let question =
        format!("GET /v1/pool HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {client}\r\n\r\n");
    let _deaf: Vec<_> = (0..4)
        .map(|_| {
            let mut stream = encrypted(&broker);
            stream.sock.set_write_timeout(Some(Duration::from_millis(200))).unwrap();
            // Until the broker takes no more.
            while stream.write_all(question.repeat(100).as_bytes()).is_ok() {}
            stream
        })
        .collect();
    serves(&broker, &client);
}

#[test]
fn one_client_takes_no_places_of_others() {
    // With so few files, clients have some hundred and fifty places.
    let broker = PoolBroker::start_with_files(512);
    let server = PlayedServer::start(&broker, &broker.token("server", "gpu1"), "gpu1", 1);
    let [crowd, client, admin] = [("client", "crowd"), ("client", "ada"), ("admin", "root")]
        .map(|(role, owner)| broker.token(role, owner));
    let ask = format!("GET /v1/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {crowd}\r\n\r\n");
    let stay = || {
        let mut stream = encrypted(&broker);
        stream.write_all(ask.as_bytes()).and_then(|()| stream.flush()).ok()?;
        let mut said = [0; 12];
        stream.read_exact(&mut said).ok()?;
        Some((stream, said))
    };
    let first = broker.for_token(&client);
    let all: Vec<_> = (0..560).map(|_| stay()).collect();
    let served = all.iter().flatten().filter(|(_, said)| said == b"HTTP/1.1 200").count();
    assert_eq!(served, all.len(), "it displaces its own");
    for token in [&client, &admin] {
        serves(&broker, token);
    }
    let _: PoolView = first.ask(Method::GET, "/v1/pool").unwrap();
    // A further server finds a place, and the first one has its own.
    let token = broker.token("server", "gpu2");
    let _other = PlayedServer::start(&broker, &token, "gpu2", 1);
    let view: PoolView = broker.for_token(&admin).ask(Method::GET, "/v1/pool").unwrap();
    let condition = |at: usize| view.servers[at].condition;
    assert_eq!((condition(0), condition(1)), (Condition::Ready, Condition::Ready));
    assert_eq!(view.servers[0].name, *server.name());
}
