//! What a server tells monitoring systems, and the HTTP that carries it.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use crate::Server;

/// Where a server tells metrics, by its log.
pub fn address(server: &Server) -> String {
    let log = server.log();
    let line = log
        .lines()
        .find(|line| line.contains("\"message\":\"metrics\""))
        .expect("the log names the address");
    let entry: serde_json::Value = serde_json::from_str(line).expect("the log is JSON");
    entry["fields"]["address"].as_str().expect("an address").to_owned()
}

/// Sends bytes and returns all that comes back.
pub fn talk(address: &str, bytes: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("metrics are there");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("a timeout can be set");
    // It may be cut off in the middle.
    let _ = stream.write_all(bytes);
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    String::from_utf8_lossy(&answer).into_owned()
}

/// Asks for a page; the whole answer.
pub fn get(address: &str, path: &str) -> String {
    get_by(address, path, address)
}

/// The same by this name.
pub fn get_by(address: &str, path: &str, host: &str) -> String {
    talk(address, format!("GET {path} HTTP/1.1\r\nHost: {host}\r\n\r\n").as_bytes())
}

/// All samples: by name and labels.
pub fn scrape(address: &str) -> BTreeMap<String, f64> {
    let answer = get(address, "/metrics");
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(
        head.starts_with("HTTP/1.1 200") && head.contains("application/openmetrics-text"),
        "{head}"
    );
    assert!(body.ends_with("# EOF\n"), "{body}");
    let samples = body.lines().filter(|line| !line.starts_with('#'));
    let sample = |line: &str| {
        let (name, value) = line.rsplit_once(' ').expect("a value");
        (name.to_owned(), value.parse().expect("a number"))
    };
    samples.map(sample).collect()
}

/// The sum of all samples of a name whose labels have all of these parts.
pub fn sum(samples: &BTreeMap<String, f64>, name: &str, parts: &[&str]) -> f64 {
    let fits = |sample: &str| {
        let (found, labels) = sample.split_once('{').unwrap_or((sample, ""));
        found == name && parts.iter().all(|part| labels.contains(part))
    };
    samples.iter().filter(|(sample, _)| fits(sample)).map(|(_, value)| value).sum()
}
