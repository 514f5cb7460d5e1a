//! A broker that runs reads quotas and the keys of leases again, and keeps what it has if it
//! cannot.

use std::time::Duration;

use outboard_broker_client::{AskError, Blocking, Method};
use outboard_e2e::{Folder, PATIENCE, PlayedServer, PoolBroker, outboard, within};
use outboard_pool::api::{Ask, Grant, Standing};
use outboard_pool::words::{MayShare, Request};
use rustix::process::{Pid, Signal, kill_process};

fn ask(broker: &Blocking, devices: u32) -> Result<Standing, AskError> {
    let (owner, group) = ("ada".parse().unwrap(), "everybody".parse().unwrap());
    let request = Request {
        memory_bytes: 1 << 30,
        may_share: MayShare::SameKey,
        wait_seconds: 600,
        ..Request::new(owner, group, devices)
    };
    let ask = Ask::new(request, "ab".repeat(32).parse().unwrap());
    broker.tell(Method::POST, "/v1/requests", &ask)
}

fn granted(standing: Standing) -> Grant {
    match standing {
        Standing::Granted(grant) => grant,
        waiting => panic!("{waiting:?}"),
    }
}

/// A ticket, and what it waits for.
fn waiting(standing: Standing) -> (u64, String) {
    match standing {
        Standing::Waiting { ticket, because, .. } => (ticket, because),
        granted => panic!("{granted:?}"),
    }
}

fn reload(broker: &PoolBroker) {
    let process = i32::try_from(broker.process()).unwrap();
    kill_process(Pid::from_raw(process).unwrap(), Signal::HUP).unwrap();
}

fn stands(broker: &Blocking, ticket: u64) -> Result<Standing, AskError> {
    broker.ask(Method::GET, &format!("/v1/requests/{ticket}?wait_ms=5000"))
}

#[test]
fn quotas_are_read_again_and_a_bad_file_changes_nothing() {
    let folder = Folder::create();
    let file = |text: &str| folder.write("quotas.toml", text);
    let broker = PoolBroker::start(&["--quotas", &file("[owners.ada]\ndevices = 1\n")]);
    let _server = PlayedServer::start(&broker, &broker.token("server", "s"), "gpu1", 3);
    let ada = broker.for_token(&broker.token("client", "ada"));
    granted(ask(&ada, 1).unwrap());
    let (second, because) = waiting(ask(&ada, 1).unwrap());
    assert!(because.contains("ada has 1 device"), "{because}");

    file("[owners.ada]\ndevcies = 2\n");
    reload(&broker);
    let said = broker.log.find("the quotas stay as they are");
    assert!(said.contains("quotas.toml cannot be used"), "{said}");
    broker.log.find("devcies");
    waiting(stands(&ada, second).unwrap());

    file("[owners.ada]\ndevices = 2\n");
    reload(&broker);
    granted(stands(&ada, second).unwrap());

    // What can never be had any more waits no longer.
    file("[owners.ada]\ndevices = 3\n");
    reload(&broker);
    broker.log.find("the quotas are read again");
    broker.log.find("the quotas are read again");
    let (third, _) = waiting(ask(&ada, 3).unwrap());
    file("[owners.ada]\ndevices = 2\n");
    reload(&broker);
    let refused = stands(&ada, third).unwrap_err().to_string();
    assert!(refused.contains("larger quota"), "{refused}");
}

#[test]
fn a_new_key_signs_and_servers_believe_the_former_one() {
    let mut broker = PoolBroker::start(&[]);
    let server = PlayedServer::start(&broker, &broker.token("server", "s"), "gpu1", 1);
    let token = broker.token("client", "ada");
    let ada = broker.for_token(&token);
    let first = granted(ask(&ada, 1).unwrap());
    server.use_lease(&first.token).expect("it is believed");
    let state = broker.state.path("broker");
    let made = outboard(&["broker", "new-key", "--state", &state]);
    let said = String::from_utf8_lossy(&made.stdout).into_owned();
    let key = said.split_whitespace().next().expect("a key").to_owned();
    assert!(made.status.success() && key.starts_with("k4.public."), "{said}");

    // A file that cannot be used changes nothing.
    let own = std::fs::read_to_string(broker.state.path("broker/lease.key")).unwrap();
    let put = |text: &str| broker.state.write("broker/lease.key", text);
    put("nonsense\n");
    reload(&broker);
    broker.log.find("the keys of leases stay as they are");
    put(&own);
    reload(&broker);
    broker.log.find("the keys of leases are read again");

    let path = format!("/v1/leases/{}", first.number);
    let signed = |ada: &Blocking| ada.ask::<Grant>(Method::GET, &path).unwrap().token;
    // The end of a token names the key.
    let key_of = |token: &str| token.rsplit('.').next().expect("a footer").to_owned();
    let before = key_of(&first.token);
    assert_eq!(key_of(&signed(&ada)), before, "servers have not heard of the new one yet");
    let said = broker.log.find("another key signs leases");
    assert!(said.contains(&key), "{said}");
    let again = signed(&ada);
    assert_ne!(key_of(&again), before);
    for token in [&again, &first.token] {
        server.use_lease(token).expect("both are believed");
    }
    // So it is with a broker that is started anew, also for servers that hear of it anew.
    broker.kill();
    broker.restart();
    let ada = broker.for_token(&token);
    assert_ne!(key_of(&signed(&ada)), before);
    let other = PlayedServer::start(&broker, &broker.token("server", "s"), "gpu2", 1);
    let hears = || other.use_lease(&first.token).is_err_and(|said| !said.contains("key"));
    assert!(within(PATIENCE, hears), "it is believed to be a lease of another server");
    std::thread::sleep(Duration::from_millis(200));
    server.use_lease(&first.token).expect("it is believed");
}
