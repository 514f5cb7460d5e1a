use super::*;
use proptest::prelude::*;

fn split(message: &[u8], limit: usize) -> (Preamble, &[u8]) {
    let (head, body) = message.split_first_chunk::<{ Preamble::SIZE }>().unwrap();
    let preamble = Preamble::decode(head, limit).unwrap();
    assert_eq!(preamble.len as usize, body.len());
    (preamble, body)
}

fn hello(version: Version, purpose: Purpose) -> Hello {
    Hello {
        version,
        software: "0.1.0".into(),
        client: "python3 (process 7)".into(),
        purpose,
        process: Process { id: 7, machine: 8 },
        more: Extensions::default(),
    }
}

#[test]
fn messages_round_trip() {
    for purpose in [
        Purpose::Session { devices: vec![1, 0] },
        Purpose::Lane { session: 9, key: u128::MAX - 1 },
        Purpose::Probe,
        Purpose::Memory { session: 1, key: 2 },
        Purpose::Management { devices: vec![2] },
    ] {
        let sent = hello(VERSION, purpose);
        let bytes = sent.encode();
        let (preamble, body) = split(&bytes, HELLO_LIMIT);
        assert_eq!(Hello::decode(&preamble, body, VERSION), Ok(sent));
    }
    let sent = Welcome {
        version: VERSION,
        software: "0.1.0".into(),
        session: 3,
        key: 4,
        lanes: 4,
        snapshot: vec![1, 2, 3],
        local: Some(Local { host: 5, user: 6, path: "/run/outboard/9470.sock".into() }),
        more: Extensions::default(),
    };
    let bytes = sent.encode();
    let (preamble, body) = split(&bytes, ANSWER_LIMIT);
    assert_eq!(Answer::decode(&preamble, body, VERSION), Ok(Answer::Welcome(sent.clone())));
    let sent = Welcome { local: None, ..sent };
    let bytes = sent.encode();
    let (preamble, body) = split(&bytes, ANSWER_LIMIT);
    assert_eq!(Answer::decode(&preamble, body, VERSION), Ok(Answer::Welcome(sent.clone())));
    let before = &body[..body.len() - 5];
    assert_eq!(
        Answer::decode(&preamble, before, VERSION),
        Ok(Answer::Welcome(sent)),
        "a server of before tells no socket"
    );
}

#[test]
fn every_refusal_code_has_its_own_number() {
    for (code, number) in RefusalCode::KNOWN {
        assert_eq!(code.number(), number);
        assert_eq!(RefusalCode::from_number(number), code);
    }
    assert_eq!(RefusalCode::from_number(999), RefusalCode::Other(999));
}

#[test]
fn a_refusal_shows_its_code_once() {
    let plain = Refusal { code: RefusalCode::Busy, sentence: "try later".into() };
    assert_eq!((plain.to_string().as_str(), plain.error()), ("try later [OB0206]", Code::Busy));
    let exact = Refusal::new(RefusalCode::Busy, Code::Stopping, "try later");
    assert_eq!((exact.to_string().as_str(), exact.error()), ("try later [OB0208]", Code::Stopping));
    let unknown = Refusal { code: RefusalCode::Other(999), sentence: "who knows".into() };
    assert_eq!(unknown.error(), Code::Refused);
}

#[test]
fn the_older_side_is_named() {
    let old = Version { major: 1, minor: 5 };
    let new = Version { major: 2, minor: 0 };
    let bytes = hello(old, Purpose::Probe).encode();
    let (preamble, body) = split(&bytes, HELLO_LIMIT);
    let error = Hello::decode(&preamble, body, new).unwrap_err();
    assert_eq!(error, HandshakeError::ClientTooOld { client: old, server: new });
    assert!(error.to_string().contains("update the client"));
    let refusal = Refusal::from(&error);
    assert_eq!(refusal.code, RefusalCode::ClientTooOld);

    let bytes = hello(new, Purpose::Probe).encode();
    let (preamble, body) = split(&bytes, HELLO_LIMIT);
    let error = Hello::decode(&preamble, body, old).unwrap_err();
    assert!(error.to_string().contains("update the server"));
}

#[test]
fn a_refusal_from_another_major_version_is_understood() {
    let refusal = Refusal { code: RefusalCode::ServerTooOld, sentence: "too old".into() };
    let bytes = refusal.encode(Version { major: 77, minor: 0 });
    let (preamble, body) = split(&bytes, ANSWER_LIMIT);
    assert_eq!(Answer::decode(&preamble, body, VERSION), Ok(Answer::Refusal(refusal)));
}

#[test]
fn a_newer_minor_version_may_append() {
    let newer = Version { major: VERSION.major, minor: VERSION.minor + 1 };
    let mut bytes = hello(newer, Purpose::Probe).encode();
    bytes.extend_from_slice(b"more");
    let (head, body) = bytes.split_first_chunk::<{ Preamble::SIZE }>().unwrap();
    let preamble = Preamble::decode(head, HELLO_LIMIT).unwrap();
    assert_eq!(Hello::decode(&preamble, body, VERSION).unwrap().purpose, Purpose::Probe);
}

#[test]
fn a_client_of_before_tells_no_process() {
    let bytes = hello(VERSION, Purpose::Probe).encode();
    let (preamble, body) = split(&bytes, HELLO_LIMIT);
    let before = &body[..body.len() - 16];
    assert_eq!(Hello::decode(&preamble, before, VERSION).unwrap().process, Process::default());
    assert!(Hello::decode(&preamble, &body[..body.len() - 5], VERSION).is_err());
}

#[test]
fn a_client_that_waits_is_told_its_place() {
    let sent = Waiting { place: 3, sentence: "all devices are in use".into() };
    let bytes = sent.encode(VERSION);
    let (preamble, body) = split(&bytes, ANSWER_LIMIT);
    assert_eq!(Answer::decode(&preamble, body, VERSION), Ok(Answer::Waiting(sent)));
}

#[test]
fn something_else_is_recognised() {
    let http = b"GET / HTTP/1.1\r\n";
    assert_eq!(Preamble::decode(http, HELLO_LIMIT), Err(HandshakeError::NotOutboard));
}

proptest! {
    #[test]
    fn any_body_decodes_or_fails(body in proptest::collection::vec(any::<u8>(), 0..300)) {
        let preamble = Preamble { version: VERSION, len: body.len() as u32 };
        let _ = Hello::decode(&preamble, &body, VERSION);
        let _ = Answer::decode(&preamble, &body, VERSION);
    }
}

#[test]
fn an_answer_that_goes_on_elsewhere_arrives() {
    let sent = auth::Secure { fingerprint: [7; 32], key: u128::MAX - 1 };
    let bytes = sent.encode(VERSION);
    let (preamble, body) = split(&bytes, ANSWER_LIMIT);
    assert_eq!(Answer::decode(&preamble, body, VERSION), Ok(Answer::Secure(sent)));
}

#[test]
fn tokens_and_proofs_travel_in_hellos_and_are_in_no_log() {
    let mut sent = hello(VERSION, Purpose::Lane { session: 1, key: 0 });
    let (token, proof) = (auth::Token("obt_secret".into()), auth::Proof { nonce: 5, tag: [9; 32] });
    sent.more.set(auth::TOKEN, &token);
    sent.more.set(auth::PROOF, &proof);
    let bytes = sent.encode();
    let (preamble, body) = split(&bytes, HELLO_LIMIT);
    let got = Hello::decode(&preamble, body, VERSION).unwrap();
    assert_eq!(got.more.get(auth::TOKEN), Ok(Some(token.clone())));
    assert_eq!(got.more.get(auth::PROOF), Ok(Some(proof)));
    assert!(!format!("{token:?}").contains("secret"));
}

#[test]
fn names_that_strangers_give_themselves_control_no_terminal() {
    let mut hello = Hello {
        version: VERSION,
        software: "0.1\n".into(),
        client: format!("\u{1b}]0;owned\u{7}\u{202e}é{}", "x".repeat(1000)),
        purpose: Purpose::Probe,
        process: Process::default(),
        more: Extensions::default(),
    };
    let bytes = hello.encode();
    let preamble =
        Preamble::decode(bytes[..Preamble::SIZE].try_into().unwrap(), HELLO_LIMIT).unwrap();
    let read = Hello::decode(&preamble, &bytes[Preamble::SIZE..], VERSION).unwrap();
    hello.software = "0.1?".into();
    hello.client = format!("?]0;owned??é{}", "x".repeat(128 - 12));
    assert_eq!(read, hello);
}
