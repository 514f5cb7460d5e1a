//! Who waits in a pool, and who passes meanwhile.

use std::time::{Duration, Instant};

use jiff::{SignedDuration, Timestamp};
use outboard_broker_client::{AskError, Blocking, Method};
use outboard_e2e::{PATIENCE, PlayedServer, PoolBroker, command, within};
use outboard_pool::api::{Ask, Grant, Standing};
use outboard_pool::words::Request;

/// A pool with a server of so many devices.
struct Pool {
    broker: PoolBroker,
    _server: PlayedServer,
}

impl Pool {
    fn start(devices: usize, flags: &[&str]) -> Pool {
        let broker = PoolBroker::start(flags);
        let token = broker.token("server", "gpu1");
        let server = PlayedServer::start(&broker, &token, "gpu1", devices);
        Pool { broker, _server: server }
    }

    fn client(&self, owner: &str) -> Blocking {
        self.broker.for_token(&self.broker.token("client", owner))
    }
}

/// Asks for so many devices, and for how many seconds.
fn ask(
    of: &Blocking,
    owner: &str,
    devices: u32,
    wait_seconds: u32,
    for_seconds: Option<u32>,
) -> Result<Standing, AskError> {
    let (owner, group) = (owner.parse().unwrap(), "everybody".parse().unwrap());
    let request = Request { wait_seconds, ..Request::new(owner, group, devices) };
    let ask = Ask { for_seconds, ..Ask::new(request, "ab".repeat(32).parse().unwrap()) };
    of.tell(Method::POST, "/v1/requests", &ask)
}

fn granted(standing: Result<Standing, AskError>) -> Grant {
    match standing {
        Ok(Standing::Granted(grant)) => grant,
        other => panic!("{other:?}"),
    }
}

fn ticket(standing: Result<Standing, AskError>) -> u64 {
    match standing {
        Ok(Standing::Waiting { ticket, .. }) => ticket,
        other => panic!("{other:?}"),
    }
}

fn asked_after(of: &Blocking, ticket: u64) -> Standing {
    of.ask(Method::GET, &format!("/v1/requests/{ticket}?wait_ms=200")).expect("it is known")
}

#[test]
fn small_requests_pass_a_large_one_that_is_served_in_time() {
    let pool = Pool::start(3, &[]);
    let [carol, large, small] = ["carol", "large", "small"].map(|owner| pool.client(owner));
    let has = granted(ask(&carol, "carol", 1, 0, Some(20)));
    let all = ticket(ask(&large, "large", 3, 600, None));
    // One who says nothing, and one who would stay for longer than carol.
    for lasts in [None, Some(60)] {
        match ask(&small, "small", 1, 0, lasts) {
            Err(AskError::Refused { status: 409, sentence }) => {
                assert!(sentence.contains("--for"), "{sentence}");
            }
            other => panic!("{other:?}"),
        }
    }
    // A stream of small ones, for as long as it is let.
    let mut passed = 0;
    let patience = Duration::from_secs(20) + PATIENCE;
    let begin = Instant::now();
    let served = loop {
        assert!(begin.elapsed() < patience, "it waits still, and {passed} have passed it");
        if let Ok(Standing::Granted(grant)) = ask(&small, "small", 1, 0, Some(3)) {
            passed += 1;
            assert!(grant.renewable_until <= has.renewable_until && !grant.is_shortened);
        }
        if let Standing::Granted(grant) = asked_after(&large, all) {
            break grant;
        }
    };
    assert_eq!(served.servers[0].devices.len(), 3);
    assert!(passed >= 4, "{passed} have passed");
}

#[test]
fn what_was_lent_is_told_and_is_no_loan_once_nobody_waits() {
    let pool = Pool::start(2, &["--hold", "1s", "--longest", "5h"]);
    let [carol, large, small] = ["carol", "large", "small"].map(|owner| pool.client(owner));
    let has = granted(ask(&carol, "carol", 1, 0, Some(2 * 3600)));
    let all = ticket(ask(&large, "large", 2, 600, None));
    let ran = command()
        .args(["run", "--no-check", "--gpus", "1", "--wait", "9s", "--", "true"])
        .envs(pool.broker.variables(&pool.broker.token("client", "dora")))
        .output()
        .expect("outboard starts");
    let told = String::from_utf8_lossy(&ran.stderr);
    assert!(ran.status.success() && told.contains("lent"), "{told}");
    // Its device is free once the server has heard of the end.
    let lent = || ask(&small, "small", 1, 0, None).ok();
    let mut grant = None;
    assert!(within(PATIENCE, || {
        assert!(matches!(asked_after(&large, all), Standing::Waiting { .. }));
        grant = lent();
        grant.is_some()
    }));
    let grant = granted(Ok(grant.expect("it was granted")));
    assert!(grant.is_shortened && grant.renewable_until == has.renewable_until, "{grant:?}");
    large.bytes(Method::DELETE, &format!("/v1/requests/{all}")).expect("it leaves");
    let renew = format!("/v1/leases/{}/renew", grant.number);
    assert!(within(PATIENCE, || {
        let now: Grant = small.ask(Method::POST, &renew).expect("it goes on");
        !now.is_shortened && now.renewable_until > Timestamp::now() + SignedDuration::from_hours(4)
    }));
}
