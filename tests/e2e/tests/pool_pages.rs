//! A pool that is more than a page.

use outboard_broker_client::{Broker, Method};
use outboard_e2e::{PlayedServer, PoolBroker, command, within};
use outboard_pool::api::{Ask, PoolView, Standing, UsageView};
use outboard_pool::words::{Request, Share, Use};
use std::collections::BTreeSet;
use std::time::Duration;

#[test]
fn a_pool_of_more_than_a_page_is_shown_whole() {
    // A page says about 4,096 devices of leases; these are two of it each.
    const OWNERS: usize = 3;
    const EACH: usize = 700;
    let broker = PoolBroker::start(&["--life", "10m"]);
    let _server = PlayedServer::start(&broker, &broker.token("server", "gpu1"), "gpu1", 32);
    let part = Use::Shared(Share::try_from(1).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tasks = tokio::task::LocalSet::new();
    for owner in 0..OWNERS {
        let owner = format!("owner{owner}");
        let access = broker.settings(&broker.token("client", &owner)).access().unwrap();
        let (owner, group) = (owner.parse().unwrap(), "everybody".parse().unwrap());
        let request =
            Request { memory_bytes: 1 << 20, usage: part, ..Request::new(owner, group, 1) };
        let ask = Ask::new(request, "ab".repeat(32).parse().unwrap());
        tasks.spawn_local(async move {
            let mut connection = Broker::new(access).open().await.unwrap();
            for _ in 0..EACH {
                let standing = connection.ask(Method::POST, "/v1/requests", Some(&ask)).await;
                assert!(matches!(standing, Ok(Standing::Granted(_))), "{standing:?}");
            }
        });
    }
    runtime.block_on(tasks);
    let viewer = broker.token("viewer", "eve");
    let first: PoolView = broker.for_token(&viewer).ask(Method::GET, "/v1/pool").unwrap();
    assert!(first.next.is_some() && first.leases.len() < OWNERS * EACH);
    assert_eq!(broker.for_token(&viewer).pool().unwrap().leases.len(), OWNERS * EACH);
    let shown = command()
        .args(["pool", "leases", "--json"])
        .envs(broker.variables(&viewer))
        .output()
        .expect("outboard starts");
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown: Vec<serde_json::Value> = serde_json::from_slice(&shown.stdout).unwrap();
    assert_eq!(shown.len(), OWNERS * EACH);
}

#[test]
fn what_many_owners_have_had_is_told_whole_and_metrics_are_bounded() {
    const OWNERS: usize = 4200;
    let broker = PoolBroker::start(&["--life", "10m"]);
    let _server = PlayedServer::start(&broker, &broker.token("server", "gpu1"), "gpu1", 64);
    let access = broker.settings(&broker.token("scheduler", "slurm")).access().unwrap();
    let part = Use::Shared(Share::try_from(1).unwrap());
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tasks = tokio::task::LocalSet::new();
    for some in 0..4 {
        let access = access.clone();
        tasks.spawn_local(async move {
            let mut connection = Broker::new(access).open().await.unwrap();
            for owner in (some..OWNERS).step_by(4) {
                let owner = format!("owner{owner}").parse().unwrap();
                let request = Request {
                    memory_bytes: 1 << 20,
                    usage: part,
                    ..Request::new(owner, "everybody".parse().unwrap(), 1)
                };
                let ask = Ask::new(request, "ab".repeat(32).parse().unwrap());
                let standing = connection.ask(Method::POST, "/v1/requests", Some(&ask)).await;
                assert!(matches!(standing, Ok(Standing::Granted(_))), "{standing:?}");
            }
        });
    }
    runtime.block_on(tasks);
    let viewer = broker.token("viewer", "eve");
    let asked = broker.for_token(&viewer);
    // It is counted once a second.
    let all_are_counted = || asked.usage().unwrap().len() == OWNERS;
    assert!(within(Duration::from_secs(30), all_are_counted), "not all owners are counted");
    let first: Vec<UsageView> = asked.ask(Method::GET, "/v1/usage").unwrap();
    assert!(first.len() < OWNERS, "{}", first.len());
    let shown = command()
        .args(["pool", "usage", "--json"])
        .envs(broker.variables(&viewer))
        .output()
        .expect("outboard starts");
    assert!(shown.status.success(), "{}", String::from_utf8_lossy(&shown.stderr));
    let shown: Vec<UsageView> = serde_json::from_slice(&shown.stdout).unwrap();
    let owners: BTreeSet<&str> = shown.iter().map(|used| used.owner.as_str()).collect();
    assert_eq!((shown.len(), owners.len()), (OWNERS, OWNERS));
    let refused = asked.bytes(Method::GET, "/v1/usage?after=nothing").unwrap_err().to_string();
    assert!(refused.contains("no day, owner and group"), "{refused}");
    let metrics = asked.bytes(Method::GET, "/metrics").unwrap();
    let metrics = String::from_utf8_lossy(&metrics);
    let series = |name: &str| metrics.lines().filter(|line| line.starts_with(name)).count();
    assert_eq!(series("outboard_pool_owner_devices{"), 1025);
    let others = format!("outboard_pool_owner_devices{{owner=\"(others)\"}} {}", OWNERS - 1024);
    assert!(metrics.lines().any(|line| line == others), "{others}");
}
