//! Sessions of others, and what is left of them: said again, out of date, taken up at points that
//! never were, and a server that is made to crash.

use std::fs;
use std::io::{Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use outboard_e2e::{
    Driver, Folder, Program, RawClient, Recording, Server, command, dist, is_alive, within,
};
use outboard_test_support::skip;
use outboard_wire::handshake::resume::{Point, RESUME, Terms};
use outboard_wire::handshake::{
    ANSWER_LIMIT, Answer, Extensions, Hello, Preamble, Purpose, RefusalCode, VERSION, Welcome,
};

/// Only keeps a broken server from hanging a test.
const LIMIT: Duration = Duration::from_secs(60);

/// A token that expires so, its name, and the fingerprint of the server.
fn token(state: &str, expires: &str) -> (String, String, String) {
    let args =
        ["token", "create", "--json", "--owner", "alice", "--expires", expires, "--state", state];
    let made = command().args(args).output().expect("outboard starts");
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let made: serde_json::Value = serde_json::from_slice(&made.stdout).expect("JSON");
    let part = |name: &str| made[name].as_str().expect("a text").to_owned();
    (part("token"), part("id"), part("fingerprint"))
}

fn serve(state: &str, tls: &str) -> Server {
    let driver = Driver::chosen().name();
    Server::start_with(
        &["--driver", driver, "--tls", tls, "--require-authentication", "--state", state],
        &[],
    )
}

/// Says again what somebody has said, and returns all that comes back until the server ends the
/// connection.
fn say_again(server: &Server, bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(server.address()).expect("the server listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let mut answers = stream.try_clone().expect("a clone");
    let reader = std::thread::spawn(move || {
        let mut all = Vec::new();
        let _ = answers.read_to_end(&mut all);
        all
    });
    // The server may end it before it has read everything.
    let _ = stream.write_all(bytes);
    let _ = stream.shutdown(Shutdown::Write);
    reader.join().expect("the reader does not panic")
}

/// The refusal, if these bytes are one.
fn refusal(answer: &[u8]) -> Option<RefusalCode> {
    let (head, body) = answer.split_first_chunk::<{ Preamble::SIZE }>()?;
    let preamble = Preamble::decode(head, ANSWER_LIMIT).ok()?;
    match Answer::decode(&preamble, body.get(..preamble.len as usize)?, VERSION).ok()? {
        Answer::Refusal(refusal) => Some(refusal.code),
        _ => None,
    }
}

fn started(server: &Server) -> usize {
    server.log().matches("\"message\":\"session starts\"").count()
}

/// Whoever has recorded all of a session over TLS has nothing: no connection of it gets anywhere a
/// second time.
#[test]
fn a_session_over_tls_cannot_be_played_again() {
    let folder = Folder::create();
    let state = folder.path("state");
    let (token, _, fingerprint) = token(&state, "1h");
    let server = serve(&state, "on");
    let program = Program::new("big_copy")
        .arg("4")
        .env("OUTBOARD_TLS_FINGERPRINT", &fingerprint)
        .env("OUTBOARD_TOKEN", &token);
    let connections = Recording::all(&server, &program);
    assert!(connections.len() > 2, "{} connections: there are lanes among them", connections.len());
    let secret = token.as_bytes();
    assert!(
        connections.iter().all(|bytes| !bytes.windows(secret.len()).any(|part| part == secret)),
        "the token is not told in the clear"
    );
    let before = started(&server);
    for bytes in &connections {
        let answer = say_again(&server, bytes);
        // Lanes say hello in the clear, with a proof; all else gets no further than TLS.
        assert!(
            refusal(&answer).is_none_or(
                |code| code == RefusalCode::NoSession || code == RefusalCode::SessionOver
            )
        );
    }
    assert!(within(LIMIT, || server.workers().is_empty()), "nobody is served");
    assert_eq!(started(&server), before, "no session starts: {}", server.log());
    program.through(&server).expect_success("its owner");
}

/// In the clear, what was seen can be said again as long as the token is good: that is why TLS is
/// what servers do by themselves. But a session that is over stays over, and once the token is
/// revoked nothing of it means anything.
#[test]
fn a_session_in_the_clear_is_over_when_it_is_over() {
    let folder = Folder::create();
    let state = folder.path("state");
    let (token, id, _) = token(&state, "1h");
    let server = serve(&state, "off");
    let program =
        Program::new("big_copy").arg("4").env("OUTBOARD_TLS", "off").env("OUTBOARD_TOKEN", &token);
    let connections = Recording::all(&server, &program);
    let ended = || server.log().matches("\"message\":\"session ends").count();
    assert!(within(LIMIT, || ended() == started(&server)), "all have ended");
    let hello_of = |bytes: &[u8]| {
        let (head, body) = bytes.split_first_chunk::<{ Preamble::SIZE }>()?;
        let preamble = Preamble::decode(head, 1 << 16).ok()?;
        Hello::decode(&preamble, body.get(..preamble.len as usize)?, VERSION).ok()
    };
    let further =
        |bytes: &&Vec<u8>| hello_of(bytes).is_some_and(|mut hello| hello.purpose.keyed().is_some());
    let lanes: Vec<_> = connections.iter().filter(further).collect();
    assert!(!lanes.is_empty(), "there are lanes among {}", connections.len());
    for bytes in lanes {
        let code = refusal(&say_again(&server, bytes));
        assert!(
            matches!(code, Some(RefusalCode::SessionOver | RefusalCode::NoSession)),
            "{code:?}"
        );
    }
    let revoked = command()
        .args(["token", "revoke", &id, "--state", &state])
        .output()
        .expect("outboard starts");
    assert!(revoked.status.success());
    let before = started(&server);
    for bytes in &connections {
        let answer = say_again(&server, bytes);
        let code = refusal(&answer);
        let refused =
            [RefusalCode::NotAuthenticated, RefusalCode::SessionOver, RefusalCode::NoSession];
        assert!(
            code.is_some_and(|code| refused.contains(&code)),
            "{code:?} {} bytes",
            answer.len()
        );
    }
    assert_eq!(started(&server), before, "no session starts");
}

/// A token that has expired starts nothing; what it has started goes on.
#[test]
fn an_expired_token_starts_nothing_more() {
    let folder = Folder::create();
    let state = folder.path("state");
    let server = {
        let (_, _, _) = token(&state, "1h");
        serve(&state, "on")
    };
    let (short, _, fingerprint) = token(&state, "4s");
    let known = |program: Program| {
        program.env("OUTBOARD_TLS_FINGERPRINT", &fingerprint).env("OUTBOARD_TOKEN", &short)
    };
    let mut running = known(Program::new("endless").arg("4")).start_through(&server);
    running.wait_for_line("running");
    let devices = || {
        let args = ["devices", "--server", server.address()];
        let env = [("OUTBOARD_TLS_FINGERPRINT", fingerprint.as_str()), ("OUTBOARD_TOKEN", &short)];
        command().args(args).envs(env).output().expect("outboard starts")
    };
    assert!(within(LIMIT, || !devices().status.success()), "it expires");
    let refused = devices();
    assert!(String::from_utf8_lossy(&refused.stderr).contains("OB0402"), "{refused:?}");
    server.expect_logged("\"state\":\"expired\"");
    let started = started(&server);
    let late = known(Program::new("vector_add")).through(&server);
    assert!(!late.status.success(), "{}", late.stdout);
    assert_eq!(self::started(&server), started, "no session starts");
    assert!(!running.has_ended(), "what runs goes on");
}

/// A session that can be taken up again, and what is needed for that.
fn resumable(server: &Server) -> (TcpStream, Welcome) {
    let mut more = Extensions::default();
    more.set(RESUME, &Terms { grace: Duration::from_secs(30) });
    match ask(server, Purpose::Session { devices: vec![] }, more) {
        (stream, Some(Answer::Welcome(welcome))) => (stream, welcome),
        (_, other) => panic!("not welcome: {other:?}"),
    }
}

/// Says hello, and hears the answer, if there is one.
fn ask(server: &Server, purpose: Purpose, more: Extensions) -> (TcpStream, Option<Answer>) {
    let mut stream = TcpStream::connect(server.address()).expect("the server listens");
    stream.set_read_timeout(Some(LIMIT)).expect("a timeout");
    let (software, client) = ("test".into(), "raw client".into());
    let hello =
        Hello { version: VERSION, software, client, purpose, process: Default::default(), more };
    stream.write_all(&hello.encode()).expect("the server reads");
    let mut head = [0; Preamble::SIZE];
    let answer = stream.read_exact(&mut head).ok().map(|()| {
        let preamble = Preamble::decode(&head, ANSWER_LIMIT).expect("a preamble");
        let mut body = vec![0; preamble.len as usize];
        stream.read_exact(&mut body).expect("all of it");
        Answer::decode(&preamble, &body, VERSION).expect("an answer")
    });
    (stream, answer)
}

fn point(lane: u32, attempt: u64, received: u64) -> Extensions {
    let mut more = Extensions::default();
    more.set(RESUME, &Point { lane, attempt, received });
    more
}

/// Whoever takes up a session at a point that never was harms that session at most.
#[test]
fn points_that_never_were_end_no_other_session() {
    let server = Server::start();
    let mut neighbour = RawClient::connect(&server);
    neighbour.open();
    let welcomed = |answer: &Option<Answer>| matches!(answer, Some(Answer::Welcome(_)));
    let code = |answer: Option<Answer>| match answer {
        Some(Answer::Refusal(refusal)) => Some(refusal.code),
        other => panic!("not refused: {other:?}"),
    };

    // Not its own key, no key at all, and no point.
    let (first, welcome) = resumable(&server);
    let worker = |not: &[u32]| server.workers().into_iter().find(|worker| !not.contains(worker));
    let Welcome { session, key, .. } = welcome;
    for (session, key) in [(session, key ^ 1), (session ^ 1, key), (0, 0), (u64::MAX, u128::MAX)] {
        let (_, answer) = ask(&server, Purpose::Resume { session, key }, point(0, 1, 0));
        assert_eq!(code(answer), Some(RefusalCode::NoSession));
    }
    let (_, answer) = ask(&server, Purpose::Resume { session, key }, Extensions::default());
    assert_eq!(code(answer), Some(RefusalCode::BadHello));

    // Lanes at numbers that there are not, and more of them than there may be.
    for lane in [17, 1000, u32::MAX] {
        for received in [0, u64::MAX] {
            let (_, answer) =
                ask(&server, Purpose::Lane { session, key }, point(lane, u64::MAX, received));
            assert!(!welcomed(&answer), "lane {lane}");
        }
    }
    // The session goes on over the last connection that is newer than those before.
    let (second, answer) = ask(&server, Purpose::Resume { session, key }, point(u32::MAX, 5, 0));
    assert!(welcomed(&answer), "{answer:?}");
    for attempt in [5, 4, 0] {
        let (_, answer) =
            ask(&server, Purpose::Resume { session, key }, point(0, attempt, u64::MAX));
        assert!(answer.is_none(), "an attempt that is not newer is ignored: {answer:?}");
    }
    let (_third, answer) = ask(&server, Purpose::Resume { session, key }, point(0, u64::MAX, 0));
    assert!(welcomed(&answer), "{answer:?}");
    drop((first, second));

    // More than the server has said.
    let before = server.workers();
    let (_connection, Welcome { session, key, .. }) = resumable(&server);
    let own = worker(&before).expect("a worker of its own");
    let (_, answer) = ask(&server, Purpose::Resume { session, key }, point(0, 1, 1 << 60));
    assert!(!welcomed(&answer), "{answer:?}");
    assert!(within(LIMIT, || !is_alive(own)), "the session ends, alone");
    // The server learns of it in its own time.
    let is_over = || {
        let (_, answer) = ask(&server, Purpose::Resume { session, key }, point(0, 2, 0));
        answer.is_some_and(|answer| code(Some(answer)) == Some(RefusalCode::SessionOver))
    };
    assert!(within(LIMIT, is_over), "its client is told that it is over");

    neighbour.alloc(1 << 20).expect("the neighbour goes on");
    assert!(!server.log().contains("panicked"), "{}", server.log());
}

/// A server that crashes leaves no core file, in which its keys and tokens would be, although core
/// files are wanted here.
#[test]
fn a_crash_of_the_supervisor_leaves_no_core_file() {
    let folder = Folder::create();
    let program = dist().join("bin/outboard");
    let text = format!(
        "#!/bin/sh\nulimit -c unlimited\ncd {}\nexec {} \"$@\"\n",
        folder.display(),
        fs::canonicalize(&program).expect("it is there").display()
    );
    let script = folder.write("serve", &text);
    folder.allow("serve", 0o700);
    // What crashes here does leave one, or at least is said to have.
    let other = Command::new("sh")
        .args(["-c", "ulimit -c unlimited && kill -ABRT $$"])
        .current_dir(&*folder)
        .status();
    if !other.expect("sh starts").core_dumped() {
        skip!("this machine keeps no core files");
    }
    let state = folder.path("state");
    let (_, _, _) = token(&state, "1h");
    let args = ["--driver", "cpu", "--tls", "on", "--state", &state];
    let mut server = Server::start_program(Path::new(&script), &args, &[]);
    let limits = fs::read_to_string(format!("/proc/{}/limits", server.id())).expect("it runs");
    let line = limits.lines().find(|line| line.starts_with("Max core file size")).expect("a limit");
    assert!(line.contains("unlimited"), "{line}");
    let pid = rustix::process::Pid::from_raw(server.id().cast_signed()).expect("a process");
    rustix::process::kill_process(pid, rustix::process::Signal::ABORT).expect("it is there");
    let status = server.ended(LIMIT).expect("it ends");
    assert_eq!(status.signal(), Some(6), "{status}");
    assert!(!status.core_dumped(), "{status}");
}
