//! Sessions whose connections are encrypted.

use std::time::Instant;

use outboard_client::link::security::{Security, Tls};
use outboard_client::link::{
    Choice, Config, ConnectError, Link, Opened, Turn, handshake, join, open,
};
use outboard_supervisor::auth::certificate;
use outboard_transport::tcp::Tcp;
use outboard_transport::{Any, Stream, Transport, read_exact, tls, write_all};
use outboard_wire::ContextId;
use outboard_wire::handshake::auth::{PROOF, Proof, proven};
use outboard_wire::handshake::resume::{Point, RESUME};
use outboard_wire::handshake::{
    ANSWER_LIMIT, Answer, Extensions, Preamble, Purpose, RefusalCode, VERSION,
};
use tempfile::TempDir;

use super::parts::{ECHO, PATIENCE, Part, hello};

pub(crate) const ALL: &[(&str, fn())] = &[
    ("an_encrypted_session_is_served_by_a_worker_with_a_key_of_its_own", served),
    ("a_further_connection_needs_the_key_and_a_new_proof", further),
];

/// A server that encrypts, and what its clients need.
fn serve() -> (Part, Security, TempDir) {
    serve_with(&[])
}

/// The same with these variables.
pub(crate) fn serve_with(env: &[(&str, &str)]) -> (Part, Security, TempDir) {
    let state = tempfile::tempdir().unwrap();
    let server = Part::start_with(&["tls-supervisor", state.path().to_str().unwrap()], env);
    let fingerprint =
        certificate::fingerprint(&state.path().join("server.crt")).unwrap().to_string();
    let security = Security { tls: Tls::On, fingerprint: Some(fingerprint), ..Security::default() };
    (server, security, state)
}

pub(crate) fn link(address: &str, security: Security) -> Link {
    let config =
        Config { timeout: PATIENCE, transport: Choice::Tcp, security, ..Config::default() };
    let hello = hello(Purpose::Session { devices: vec![] });
    Link::connect(&Any, address, &hello, config, Box::new(|_, _| ())).unwrap().0
}

fn served() {
    let (server, security, state) = serve();
    let link = link(&server.first_line, security);
    assert_eq!(link.peer().0, "tcp+tls");
    let payload: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
    for _ in 0..20 {
        assert!(
            link.call(ECHO, ContextId::NONE, |writer| writer.fixed(&payload)).unwrap().payload
                == payload
        );
    }
    // The server's key is in no process but the supervisor.
    let key = std::fs::read_to_string(state.path().join("server.key")).unwrap();
    let worker = server.children()[0];
    let environment = std::fs::read(format!("/proc/{worker}/environ")).unwrap();
    let line = key.lines().nth(1).unwrap().as_bytes();
    assert!(!environment.windows(line.len()).any(|part| part == line));
    for descriptor in std::fs::read_dir(format!("/proc/{worker}/fd")).unwrap().flatten() {
        let target = std::fs::read_link(descriptor.path()).unwrap_or_default();
        assert!(!target.starts_with(state.path()), "a worker has {}", target.display());
    }
}

fn refused(outcome: Result<(), ConnectError>) -> RefusalCode {
    match outcome {
        Err(
            ConnectError::Refused { refusal, .. } | ConnectError::RefusedInTheClear { refusal, .. },
        ) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}

fn further() {
    let (server, security, _state) = serve();
    let address = server.first_line.as_str();
    let dial = || Tcp.connect(address, PATIENCE).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let mut waits = |_: &_| ();
    let turn = Turn { patience: None, waits: &mut waits };
    let session = hello(Purpose::Session { devices: vec![] });
    let Opened { stream, welcome, secured, .. } =
        open(dial(), address, &session, &security, deadline, turn).unwrap();
    let secured = secured.expect("it is encrypted");
    let (session, key) = (welcome.session, welcome.key);
    let lane = hello(Purpose::Lane { session, key });
    for _ in 0..3 {
        let (lane, welcome) = join(dial(), address, &lane, Some(&secured), None, deadline).unwrap();
        assert_eq!((lane.transport(), welcome.session), ("tcp+tls", session));
    }
    // The key in the clear is not taken, and neither is another key.
    assert_eq!(
        refused(handshake(&*dial(), address, &lane, deadline).map(drop)),
        RefusalCode::NotAuthenticated
    );
    let wrong = hello(Purpose::Lane { session, key: key ^ 1 });
    assert_eq!(
        refused(join(dial(), address, &wrong, Some(&secured), None, deadline).map(drop)),
        RefusalCode::NoSession
    );
    let absent = hello(Purpose::Lane { session: session ^ 1, key });
    assert_eq!(
        refused(join(dial(), address, &absent, Some(&secured), None, deadline).map(drop)),
        RefusalCode::NoSession
    );

    // Somebody has seen a hello, and says it again.
    let mut seen = hello(Purpose::Lane { session, key: 0 });
    let proof = |purpose| Proof {
        nonce: 5,
        tag: tls::tag(key, &proven(session, purpose, 5, &Extensions::default())),
    };
    seen.more.set(PROOF, &proof(1));
    let first = dial();
    write_all(&*first, &seen.encode()).unwrap();
    // The worker has it now: it hangs up on what is no TLS, where the supervisor would say a
    // sentence.
    write_all(&*first, b"not TLS at all").unwrap();
    let mut byte = [0];
    assert!(read_exact(&*first, &mut byte).is_err() || byte[0] != b'O');
    assert_eq!(answer(&*dial(), &seen.encode()), RefusalCode::NoSession);
    // A proof for one purpose is none for another.
    seen.more.set(PROOF, &Proof { nonce: 6, ..proof(3) });
    assert_eq!(answer(&*dial(), &seen.encode()), RefusalCode::NoSession);
    // Nobody on the way can say how far the client has come.
    let mut back = hello(Purpose::Resume { session, key: 0 });
    back.more.set(RESUME, &Point { lane: 0, attempt: 1, received: 0 });
    back.more
        .set(PROOF, &Proof { nonce: 7, tag: tls::tag(key, &proven(session, 5, 7, &back.more)) });
    back.more.set(RESUME, &Point { lane: 0, attempt: 1, received: 1 });
    assert_eq!(answer(&*dial(), &back.encode()), RefusalCode::NoSession);
    // The session is well.
    join(dial(), address, &lane, Some(&secured), None, deadline).unwrap();
    drop(stream);
}

/// The refusal of a hello.
fn answer(stream: &dyn Stream, hello: &[u8]) -> RefusalCode {
    write_all(stream, hello).unwrap();
    let mut head = [0; Preamble::SIZE];
    read_exact(stream, &mut head).unwrap();
    let preamble = Preamble::decode(&head, ANSWER_LIMIT).unwrap();
    let mut body = vec![0; preamble.len as usize];
    read_exact(stream, &mut body).unwrap();
    match Answer::decode(&preamble, &body, VERSION).unwrap() {
        Answer::Refusal(refusal) => refusal.code,
        other => panic!("not refused: {other:?}"),
    }
}
