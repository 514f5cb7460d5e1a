//! What administrators see of a server, and how they end sessions.

use outboard_e2e::{
    Folder, Program, Running, Server, Terminal, command, one_line, outboard, within,
};
use serde_json::Value;
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn json(args: &[&str]) -> Value {
    let output = outboard(args);
    assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).expect("JSON")
}

fn sessions(server: &Server) -> Vec<Value> {
    let listing = json(&["sessions", "--json", "--over", "0.3", "--server", server.address()]);
    listing["sessions"].as_array().cloned().unwrap_or_default()
}

fn endless(server: &Server, mebibytes: &str, transport: &str) -> Running {
    let program = Program::new("endless")
        .arg(mebibytes)
        .env("OUTBOARD_LOG", "1")
        .env("OUTBOARD_TRANSPORT", transport);
    let mut running = program.start_through(server);
    running.wait_for_line("running");
    running
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn sessions_are_listed_with_what_they_do() {
    let server = Server::start();
    assert!(sessions(&server).is_empty());
    let _first = endless(&server, "64", "tcp");
    let second = endless(&server, "16", "shm");
    let is_at_work = |session: &Value| {
        let launches = number(&session["launches_per_second"]);
        launches > 0.0 && number(&session["calls_per_second"]) > launches
    };
    let mut listed = Vec::new();
    let both_at_work = within(PATIENCE, || {
        // A machine with much to do may run one of them for none of the time that is looked at.
        listed = sessions(&server);
        listed.len() == 2 && listed.iter().all(is_at_work)
    });
    assert!(both_at_work, "{listed:?}");
    for (session, transport, mebibytes) in [(&listed[0], "tcp", 64), (&listed[1], "shm", 16)] {
        assert_eq!(session["state"], "serving", "{session}");
        assert_eq!(session["transport"], transport, "{session}");
        assert!(
            session["client"].as_str().is_some_and(|client| client.starts_with("endless (")),
            "{session}"
        );
        assert!(session["owner"].as_str().is_some_and(|owner| !owner.is_empty()), "{session}");
        assert!(
            number(&session["commands"]["launch"]) >= 20.0 && number(&session["waits"]) >= 1.0,
            "{session}"
        );
        assert!(number(&session["bytes_to_device"]["commands"]) > 20.0 * 16.0, "{session}");
        assert!(number(&session["memory"][0]["bytes"]) >= f64::from(mebibytes << 20), "{session}");
    }
    assert!(
        listed[1]["client"]
            .as_str()
            .is_some_and(|client| client.contains(&second.id().to_string()))
    );
    let text = outboard(&["sessions", "--server", server.address()]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.starts_with("SESSION") && text.matches("endless (").count() == 2, "{text}");
}

#[test]
fn a_session_that_is_killed_ends_with_a_sentence_and_its_neighbour_goes_on() {
    let server = Server::start();
    for transport in ["tcp", "shm"] {
        let program = endless(&server, "1", transport);
        let client = format!("({})", program.id());
        let mut neighbour = endless(&server, "1", transport);
        let all = sessions(&server);
        let session = all
            .iter()
            .find(|session| session["client"].as_str().is_some_and(|name| name.ends_with(&client)));
        let id = session.expect("it is listed")["id"].as_str().expect("a number").to_owned();
        let ended = json(&["kill", &id[..8], "--json", "--server", server.address()]);
        assert_eq!(ended["ended"], serde_json::json!([id]));
        let outcome = program.finish();
        assert_eq!(outcome.status.code(), Some(3), "{}{}", outcome.stdout, outcome.stderr);
        assert!(outcome.stdout.contains("then the same"), "the error stays: {}", outcome.stdout);
        assert!(
            outcome.stderr.contains("ended by the server's administrator"),
            "{}",
            outcome.stderr
        );
        assert!(
            server.log().matches(&id).count() >= 2,
            "the log has the number that the list has: {}",
            server.log()
        );
        assert!(within(PATIENCE, || sessions(&server).len() == 1), "it is gone");
        assert!(!neighbour.has_ended(), "the neighbour went on");
        neighbour.kill();
        assert!(within(PATIENCE, || sessions(&server).is_empty()), "so is the other");
    }
}

#[test]
fn sessions_are_killed_by_owner_or_all_together() {
    let server = Server::start();
    let (one, two) = (endless(&server, "1", "tcp"), endless(&server, "1", "tcp"));
    let owner = sessions(&server)[0]["owner"].as_str().expect("an owner").to_owned();
    let none = outboard(&["kill", "--owner", "nobody", "--json", "--server", server.address()]);
    assert_eq!(none.status.code(), Some(1));
    let none: Value = serde_json::from_slice(&none.stdout).expect("JSON");
    assert_eq!(none["ended"], serde_json::json!([]));
    let both = json(&["kill", "--owner", &owner, "--json", "--server", server.address()]);
    assert_eq!(both["ended"].as_array().map(Vec::len), Some(2), "{both}");
    assert_eq!((one.finish().status.code(), two.finish().status.code()), (Some(3), Some(3)));
    assert!(within(PATIENCE, || sessions(&server).is_empty()), "both are gone");
    let three = endless(&server, "1", "tcp");
    let all = json(&["kill", "--all", "--json", "--server", server.address()]);
    assert_eq!(all["ended"].as_array().map(Vec::len), Some(1), "{all}");
    assert_eq!(three.finish().status.code(), Some(3));
}

#[test]
fn who_asks_for_what_is_not_there_is_told() {
    let server = Server::start();
    let said = |args: &[&str]| {
        let output = outboard(&[args, &["--server", server.address()]].concat());
        assert!(!output.status.success(), "{args:?}");
        one_line(&output.stderr)
    };
    assert!(said(&["kill", "abc"]).contains("too short"));
    assert!(said(&["kill", "abcd"]).contains("there is no session abcd"));
    let elsewhere = outboard(&["kill", "--all", "--server", "192.0.2.1:9470"]);
    assert!(
        !elsewhere.status.success()
            && String::from_utf8_lossy(&elsewhere.stderr).contains("another machine")
    );
    assert!(said(&["sessions", "--admin", "/nowhere/at/all"]).contains("no server's socket"));
    let closed = Server::start_with(&["--driver", "cpu", "--admin", "none"], &[]);
    let output = outboard(&["sessions", "--server", closed.address()]);
    assert!(
        !output.status.success()
            && String::from_utf8_lossy(&output.stderr).contains("--admin PATH")
    );
}

#[test]
fn nonsense_at_the_administrators_socket_harms_nobody() {
    use std::io::{Read, Write};
    use std::os::unix::fs::MetadataExt;
    let folder = Folder::create();
    let path = folder.path("admin.sock");
    let server = Server::start_with(&["--driver", "cpu", "--admin", &path], &[]);
    assert_eq!(std::fs::metadata(&path).expect("the socket is there").mode() & 0o777, 0o600);
    let _running = endless(&server, "1", "tcp");
    for (bytes, answer) in [
        (&b"\xff\xff\xff\xff"[..], "too long"),
        (b"\x04\0\0\0nope", "does not understand"),
        (b"\x20\0\0\0{\"version\":1,\"ask\":{\"kill\":true}}", "does not understand"),
        (b"\x10\0\0\0half", ""),
    ] {
        let mut stream = std::os::unix::net::UnixStream::connect(&path).expect("it listens");
        stream.write_all(bytes).expect("it reads");
        stream.shutdown(std::net::Shutdown::Write).expect("a socket can be half closed");
        let mut said = Vec::new();
        let _ = stream.read_to_end(&mut said);
        assert!(
            String::from_utf8_lossy(&said).contains(answer),
            "{bytes:?}: {}",
            String::from_utf8_lossy(&said)
        );
    }
    // Of this user are workers, too: without the secret, nothing is shown and nothing ends.
    let secret = path.replace("sock", "secret");
    assert_eq!(std::fs::metadata(&secret).expect("a file").mode() & 0o777, 0o600);
    let hidden = format!("{secret}.hidden");
    std::fs::rename(&secret, &hidden).expect("the file can be moved");
    for command in [&["sessions"][..], &["kill", "--all"], &["upgrade"]] {
        let output = outboard(&[command, &["--admin", &path]].concat());
        let said = one_line(&output.stderr);
        assert!(!output.status.success() && said.contains("OB0902"), "{said}");
    }
    std::fs::rename(&hidden, &secret).expect("the file can be moved");
    let listing = json(&["sessions", "--json", "--admin", &path]);
    assert_eq!(listing["sessions"].as_array().map(Vec::len), Some(1));
}

#[test]
fn top_shows_sessions_and_devices_to_scripts() {
    let server = Server::start_with(&["--driver", "cpu"], &[("OUTBOARD_CPU_DEVICES", "2")]);
    let _running = endless(&server, "64", "tcp");
    let look = json(&["top", "--once", "--json", "--server", server.address()]);
    let session = look["server"]["sessions"]
        .as_array()
        .and_then(|all| all.iter().find(|one| one["kind"] == "session"));
    let session = session.expect("the program's session");
    assert!(
        number(&session["launches_per_second"]) > 0.0
            && number(&session["memory"][0]["bytes"]) >= 64e6,
        "{look}"
    );
    let devices = look["devices"].as_array().expect("devices");
    assert_eq!(devices.len(), 2, "{look}");
    assert!(
        number(&devices[0]["memory_used_bytes"]) >= 64e6 && devices[0]["utilisation"].is_number(),
        "{look}"
    );
    assert!(
        number(&devices[0]["memory_bytes"]) > number(&devices[0]["memory_free_bytes"]),
        "{look}"
    );
    let text = outboard(&["top", "--once", "--server", server.address()]);
    let text = String::from_utf8_lossy(&text.stdout).into_owned();
    assert!(text.contains("CALLS/S") && text.contains("endless ("), "{text}");
    let listing = json(&["devices", "--json", "--server", server.address()]);
    assert_eq!(listing["devices"][0]["sessions"], 1, "{listing}");
    assert_eq!(listing["devices"][1]["sessions"], 0, "{listing}");
    assert!(
        listing["devices"][0]["memory_free_bytes"].is_number()
            && listing["devices"][0]["compute_capability"].is_string()
    );
}

#[test]
fn top_draws_on_a_terminal_and_leaves_it_as_it_was() {
    let server = Server::start();
    let _running = endless(&server, "1", "tcp");
    for by_signal in [false, true] {
        let mut top = command();
        top.args(["top", "--interval", "0.2", "--server", server.address()]);
        let mut terminal = Terminal::run(&mut top);
        let is_shown = terminal.shows("SESSION") && terminal.shows("endless");
        assert!(is_shown, "{}", terminal.screen);
        assert!(terminal.is_raw(), "keys come one by one");
        if by_signal {
            let id = rustix::process::Pid::from_child(&terminal.child);
            rustix::process::kill_process(id, rustix::process::Signal::TERM).expect("it is there");
        } else {
            terminal.press("mq");
        }
        terminal.is_left_as_it_was();
    }
}
