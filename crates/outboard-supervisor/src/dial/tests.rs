use std::net::TcpListener;

use rustix::net::{AddressFamily, SocketType, bind, getsockname, listen, socket};
use tokio::task::JoinSet;

use super::turns::MOST_OF_A_SESSION;
use super::*;

fn call(address: &str, secure: bool) -> Call {
    let callee = Callee::Address(address.to_owned());
    Call { callee, session: 1, ticket: 2, link: 3, secure, movable: false }
}

fn dialer(networks: &[&str]) -> Dialer {
    let networks = networks.iter().map(|network| network.parse().unwrap()).collect();
    Dialer::new(Config { reach: Reach::Networks(networks), addresses: Vec::new() }, None)
}

/// One that connects to this machine.
fn near() -> Dialer {
    dialer(&["127.0.0.0/8"])
}

async fn dial(dialer: &Dialer, address: &str) -> Result<OwnedFd, Failure> {
    dialer.dial(&call(address, false), &Turns::default()).await
}

/// A port at which nobody listens.
fn closed() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().to_string()
}

/// A port that does not answer, as long as these are kept.
fn silent() -> (String, [OwnedFd; 3]) {
    let tcp = || socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    let listener = tcp();
    bind(&listener, &"127.0.0.1:0".parse::<SocketAddr>().unwrap()).unwrap();
    listen(&listener, 0).unwrap();
    let address: SocketAddr = getsockname(&listener).unwrap().try_into().unwrap();
    // They fill the queue of those that nobody has accepted.
    let waiting = [tcp(), tcp()];
    for one in &waiting {
        rustix::io::ioctl_fionbio(one, true).unwrap();
        let _ = rustix::net::connect(one, &address);
    }
    let [first, second] = waiting;
    (address.to_string(), [listener, first, second])
}

#[test]
fn a_ticket_is_not_told_where_the_hello_is_in_the_clear_and_the_rest_is_not() {
    let (open, sealed) = (hello(&call("a:1", false)), hello(&call("a:1", true)));
    let ticket = 2_u128.to_le_bytes();
    let has = |bytes: &[u8]| bytes.windows(16).any(|window| window == ticket);
    assert!(has(&open.unwrap()) && !has(&sealed.unwrap()));
}

#[tokio::test(start_paused = true)]
async fn what_is_out_of_reach_is_not_connected_to() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let mapped = format!("[::ffff:127.0.0.1]:{}", address.port());
    let by_default = Dialer::new(Config::default(), None);
    for literal in [address.to_string(), mapped, "169.254.169.254:80".into(), "[fe80::1]:80".into()]
    {
        let started = Instant::now();
        for dialer in [&by_default, &dialer(&["10.0.0.0/8"])] {
            let Failure { told, reason } = dial(dialer, &literal).await.unwrap_err();
            assert!(told.contains("--peers") && reason.is_none(), "{told} {reason:?}");
        }
        assert_eq!(started.elapsed(), Duration::ZERO, "an address out of reach tells nothing");
    }
    listener.set_nonblocking(true).unwrap();
    let nobody = || listener.accept().is_err();
    assert!(nobody());
    // A name is judged by what it resolves to, and so is an address in another form.
    for name in ["localhost", "127.1", "0x7f.1", "2130706433"] {
        let name = format!("{name}:{}", address.port());
        let reason = dial(&by_default, &name).await.unwrap_err().reason;
        assert!(reason.as_ref().is_some_and(|it| it.contains("in no network")), "{reason:?}");
        assert!(nobody());
    }
    tokio::time::resume();
    dial(&near(), &address.to_string()).await.unwrap();
    assert!(!nobody());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_makes_no_links_resolves_no_name() {
    let dialer = Dialer::new(Config { reach: Reach::Nowhere, addresses: Vec::new() }, None);
    // Whoever wanted to resolve would have to wait.
    dialer.names.close();
    for address in ["name.invalid:1", "127.0.0.1:1", "8.8.8.8:1", "nonsense"] {
        let started = Instant::now();
        let failure = dial(&dialer, address).await.unwrap_err();
        assert_eq!(failure, Failure::open("this server makes no links to others"));
        assert_eq!(started.elapsed(), Duration::ZERO);
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_closed_silent_or_unknown_sounds_and_lasts_alike() {
    let (silent, _kept) = silent();
    let dialer = near();
    let mut reasons = Vec::new();
    for address in [&*closed(), &silent, "name.invalid:80", "10.1.2.3.4:80", "nonsense"] {
        let started = Instant::now();
        let Failure { told, reason } = dial(&dialer, address).await.unwrap_err();
        assert_eq!(started.elapsed(), PATIENCE, "{address}: {told}");
        let alike = told.replace(address, "ADDRESS");
        assert_eq!(alike, Failure::hidden("ADDRESS", String::new()).told);
        reasons.push(reason.unwrap());
    }
    assert!(reasons[0].contains("refused") && reasons[1].contains("no answer"), "{reasons:?}");
}

/// One session asks for closed ports without end; another one connects meanwhile, and only so many
/// ports were tried.
#[tokio::test]
async fn a_session_that_scans_tries_few_ports_and_keeps_nobody_out() {
    const ASKED: usize = 500;
    let patience = Duration::from_secs(1);
    let (dialer, turns) = (Arc::new(Dialer { patience, ..near() }), Arc::new(Turns::default()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap().to_string();
    let closed = closed();
    let (started, mut scan) = (Instant::now(), JoinSet::new());
    let (mut tried, mut refused) = (0, 0);
    while started.elapsed() < patience * 3 {
        while scan.len() < ASKED {
            let (dialer, turns, closed) = (Arc::clone(&dialer), Arc::clone(&turns), closed.clone());
            scan.spawn(async move { dialer.dial(&call(&closed, false), &turns).await });
        }
        // It would fail if it had to wait for any of the others to end.
        dial(&dialer, &open).await.unwrap();
        tokio::time::sleep(Duration::from_millis(100)).await;
        while let Some(ended) = scan.try_join_next() {
            match ended.unwrap().unwrap_err() {
                Failure { reason: Some(_), .. } => tried += 1,
                Failure { told, .. } => {
                    assert!(told.contains("too many connections"), "{told}");
                    refused += 1;
                }
            }
        }
    }
    let most = MOST_OF_A_SESSION * (started.elapsed().as_secs() / patience.as_secs()) as usize;
    assert!((1..=most).contains(&tried), "{tried} of at most {most}");
    assert!(refused > 0);
    // Once it has stopped, it may connect as well.
    scan.shutdown().await;
    dialer.dial(&call(&open, false), &turns).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_turn() {
    let (dialer, turns) = (Arc::new(near()), Arc::new(Turns::default()));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = listener.local_addr().unwrap().to_string();
    let mut held = Vec::new();
    for _ in 0..MOST_OF_A_SESSION {
        held.push(turns.come().await.unwrap());
    }
    let waiting = {
        let (dialer, turns, open) = (Arc::clone(&dialer), Arc::clone(&turns), open.clone());
        tokio::spawn(async move { dialer.dial(&call(&open, false), &turns).await })
    };
    tokio::time::sleep(Duration::from_secs(3)).await;
    assert!(!waiting.is_finished());
    tokio::time::resume();
    held.pop();
    waiting.await.unwrap().unwrap();
    // Its turn does not come in time: the worker hears so before it gives up.
    held.push(turns.come().await.unwrap());
    tokio::time::pause();
    let started = Instant::now();
    let failure = dialer.dial(&call(&open, false), &turns).await.unwrap_err();
    assert!(failure.told.contains("too many") && started.elapsed() < PATIENCE, "{failure:?}");
}

#[tokio::test(start_paused = true)]
async fn names_that_take_long_leave_room_for_those_of_others() {
    let dialer = near();
    let turns = Turns::default();
    let held: Vec<_> =
        std::iter::from_fn(|| Arc::clone(&turns.names).try_acquire_owned().ok()).collect();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let open = format!("localhost:{}", listener.local_addr().unwrap().port());
    assert!(dialer.dial(&call(&open, false), &turns).await.is_err());
    tokio::time::resume();
    dial(&dialer, &open).await.unwrap();
    drop(held);
    dialer.dial(&call(&open, false), &turns).await.unwrap();
}
