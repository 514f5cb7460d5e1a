//! What a server owes clients on its own machine.

use std::os::unix::fs::MetadataExt;
use std::time::Duration;

use outboard_client::link::{Choice, ConnectError};
use outboard_wire::ContextId;
use outboard_wire::handshake::{Purpose, RefusalCode};

use super::parts::*;
use super::scenarios::{is_lost, works};

pub(crate) const ALL: &[(&str, fn())] = &[
    (
        "a_client_on_this_machine_moves_to_shared_memory",
        a_client_on_this_machine_moves_to_shared_memory,
    ),
    ("a_server_is_reached_by_its_socket_alone", a_server_is_reached_by_its_socket_alone),
    (
        "a_worker_is_neither_a_client_nor_an_administrator",
        a_worker_is_neither_a_client_nor_an_administrator,
    ),
    ("a_worker_is_no_virtual_machine", a_worker_is_no_virtual_machine),
    ("without_the_socket_a_client_stays_with_tcp", without_the_socket_a_client_stays_with_tcp),
    (
        "memory_is_shared_over_the_socket_only_and_with_the_key",
        memory_is_shared_over_the_socket_only_and_with_the_key,
    ),
    ("who_dies_is_noticed_through_shared_memory", who_dies_is_noticed_through_shared_memory),
    (
        "a_client_that_brings_no_memory_holds_up_nobody",
        a_client_that_brings_no_memory_holds_up_nobody,
    ),
    (
        "an_idle_session_in_shared_memory_takes_no_time",
        an_idle_session_in_shared_memory_takes_no_time,
    ),
];

fn socket_of(server: &Part) -> String {
    socket(server.child.id())
}

fn a_client_on_this_machine_moves_to_shared_memory() {
    let server = serve();
    let (link, worker) = connect_by(Choice::Auto, &server.first_line, vec![]).unwrap();
    assert_eq!(link.peer().0, "shm");
    let memory = link.memory().expect("memory is shared");
    assert_eq!(memory.staging().bytes(), outboard_wire::limits::STAGING);
    works(&link);
    // More than the rings hold, both ways.
    let large = vec![7_u8; 3 << 20];
    let reply = link.call(ECHO, ContextId::NONE, |writer| writer.fixed(&large)).unwrap();
    assert!(reply.payload == large);
    drop(link);
    wait_until("the worker's end", || !runs(worker));
    let (link, _) = connect_by(Choice::Tcp, &server.first_line, vec![]).unwrap();
    assert!(link.peer().0 == "tcp" && link.memory().is_none());
    works(&link);
}

fn a_server_is_reached_by_its_socket_alone() {
    let server = serve();
    let address = format!("unix:{}", socket_of(&server));
    let (link, _) = connect_by(Choice::Auto, &address, vec![]).unwrap();
    assert_eq!(link.peer().0, "shm");
    works(&link);
    match connect_by(Choice::Tcp, &address, vec![]) {
        Err(ConnectError::Transport { wanted: "tcp", reason }) => {
            assert!(reason.contains(&address), "{reason}")
        }
        other => panic!("not refused, but: {other:?}"),
    }
}

/// It is of the user who may be both.
fn a_worker_is_neither_a_client_nor_an_administrator() {
    let server = serve();
    let path = socket_of(&server);
    let admin = path.replace(".sock", ".admin.sock");
    let secret = std::fs::read_to_string(path.replace(".sock", ".admin.secret")).unwrap();
    let question = |secret: Option<&str>, ask: &str| {
        let secret = secret.map_or(String::new(), |secret| format!(r#""secret":"{secret}","#));
        let text = format!(r#"{{"version":1,{secret}"ask":{ask}}}"#);
        let len = u32::try_from(text.len()).unwrap();
        [admin.as_bytes(), b"\0", &len.to_le_bytes(), text.as_bytes()].concat()
    };
    let hello = hello(Purpose::Session { devices: vec![] }).encode();
    let greeting = [path.as_bytes(), b"\0", &hello].concat();
    let text = |heard: &[u8]| String::from_utf8_lossy(heard).into_owned();
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    let (other, _) = connect(&server.first_line, vec![]).unwrap();
    let by_worker = |what: &[u8]| {
        let heard = link.call(SAY, ContextId::NONE, |writer| writer.fixed(what)).unwrap();
        text(&heard.payload)
    };
    // Even if it had found out the secret.
    for ask in [r#""sessions""#, r#"{"kill":"all"}"#, r#""upgrade""#] {
        for secret in [None, Some("0"), Some(&*secret)] {
            assert_eq!(by_worker(&question(secret, ask)), "", "{ask}");
        }
    }
    let heard = by_worker(&greeting);
    assert!(heard.contains("this socket is for the server's own user"), "{heard}");
    // Another process of the user, without the secret and with it.
    for shown in [None, Some(""), Some("0"), Some(&secret[1..])] {
        for ask in [r#""sessions""#, r#"{"kill":"all"}"#, r#""upgrade""#] {
            let heard = text(&say(&question(shown, ask)));
            assert!(heard.contains("OB0902") && !heard.contains("killed"), "{heard}");
        }
    }
    assert!(text(&say(&question(Some(&secret), r#""sessions""#))).contains(r#""sessions":["#));
    assert!(!text(&say(&greeting)).contains("this socket is for"));
    works(&link);
    works(&other);
    assert!(text(&say(&question(Some(&secret), r#"{"kill":"all"}"#))).contains("killed"));
    wait_until("the sessions' end", || server.children().is_empty());
}

/// A hypervisor forwards to a socket of the server's, which its user may connect to.
fn a_worker_is_no_virtual_machine() {
    let folder = tempfile::tempdir().unwrap();
    let socket = folder.path().join("vsock");
    let server = Part::start_with(&["supervisor"], &[(VSOCK, socket.to_str().unwrap())]);
    let path = format!("{}_{VSOCK_PORT}", socket.display());
    assert_eq!(std::fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
    let hello = hello(Purpose::Session { devices: vec![] }).encode();
    let greeting = [path.as_bytes(), b"\0", &hello].concat();
    let (link, _) = connect(&server.first_line, vec![]).unwrap();
    let by_worker = link.call(SAY, ContextId::NONE, |writer| writer.fixed(&greeting)).unwrap();
    assert!(by_worker.payload.is_empty(), "{:?}", by_worker.payload);
    assert!(!say(&greeting).is_empty(), "others of the user are let in");
    works(&link);
}

fn without_the_socket_a_client_stays_with_tcp() {
    let server = serve();
    std::fs::remove_file(socket_of(&server)).unwrap();
    let (link, _) = connect_by(Choice::Auto, &server.first_line, vec![]).unwrap();
    assert_eq!(link.peer().0, "tcp");
    works(&link);
    match connect_by(Choice::Shm, &server.first_line, vec![]) {
        Err(error @ ConnectError::Transport { wanted: "shm", .. }) => {
            assert!(error.to_string().contains("cannot be used: No such file"), "{error}");
        }
        other => panic!("not refused, but: {other:?}"),
    }
}

fn memory_is_shared_over_the_socket_only_and_with_the_key() {
    use outboard_client::link::handshake;
    use outboard_transport::{Any, Transport};
    let server = serve();
    let deadline = std::time::Instant::now() + PATIENCE;
    let first = Any.connect(&server.first_line, PATIENCE).unwrap();
    let welcome =
        handshake(&*first, "", &hello(Purpose::Session { devices: vec![] }), deadline).unwrap();
    let local = welcome.local.clone().expect("the server tells of its socket");
    assert_eq!(local.host, outboard_transport::host::id());
    let code = |address: &str, purpose| {
        let stream = Any.connect(address, PATIENCE).unwrap();
        match handshake(&*stream, address, &hello(purpose), deadline) {
            Err(ConnectError::Refused { refusal, .. }) => refusal.code,
            other => panic!("not refused, but: {other:?}"),
        }
    };
    let (session, key) = (welcome.session, welcome.key);
    assert_eq!(code(&server.first_line, Purpose::Memory { session, key }), RefusalCode::NotAllowed);
    let socket = format!("unix:{}", local.path);
    assert_eq!(code(&socket, Purpose::Memory { session, key: key ^ 1 }), RefusalCode::NoSession);
}

fn who_dies_is_noticed_through_shared_memory() {
    let server = serve();
    let (neighbour, _) = connect_by(Choice::Shm, &server.first_line, vec![]).unwrap();
    let (victim, worker) = connect_by(Choice::Shm, &server.first_line, vec![]).unwrap();
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| victim.call(STUCK, ContextId::NONE, |_| ()));
        wait_until("the call", || victim.last() == 1);
        kill(worker, libc::SIGKILL);
        assert!(is_lost(&waiting.join().unwrap()));
    });
    assert!(is_lost(&victim.post(ECHO, ContextId::NONE, |_| ())));
    works(&neighbour);
    let client = Part::start(&["shm-client", &server.first_line]);
    let worker: u32 = client.first_line.parse().unwrap();
    client.signal(libc::SIGKILL);
    wait_until("the worker's end", || !runs(worker));
    works(&neighbour);
}

fn a_client_that_brings_no_memory_holds_up_nobody() {
    use outboard_client::link::handshake;
    use outboard_transport::{Any, Transport, write_all};
    let server = serve();
    let deadline = std::time::Instant::now() + PATIENCE;
    let address = format!("unix:{}", socket_of(&server));
    let stream = Any.connect(&address, PATIENCE).unwrap();
    let welcome =
        handshake(&*stream, "", &hello(Purpose::Session { devices: vec![] }), deadline).unwrap();
    let worker = process(&welcome);
    let (neighbour, _) = connect_by(Choice::Shm, &server.first_line, vec![]).unwrap();
    works(&neighbour);
    write_all(&*stream, b"this is no memory, whatever is said").unwrap();
    wait_until("the worker's end", || !runs(worker));
    works(&neighbour);
}

/// Ticks of processor time that a process has used.
fn ticks(process: u32) -> u64 {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit(") ").next().unwrap().split(' ').collect();
    fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()
}

fn an_idle_session_in_shared_memory_takes_no_time() {
    let server = serve();
    let (link, worker) = connect_by(Choice::Shm, &server.first_line, vec![]).unwrap();
    works(&link);
    // What spins does so for microseconds.
    std::thread::sleep(Duration::from_millis(200));
    let before = (ticks(worker), ticks(std::process::id()));
    std::thread::sleep(Duration::from_millis(1000));
    let used = (ticks(worker) - before.0, ticks(std::process::id()) - before.1);
    assert!(used.0 <= 2 && used.1 <= 2, "{used:?} of 100 ticks");
    works(&link);
}
