//! Answers while a store takes its time.

use super::*;
use crate::desk::Memory;
use crate::store::ByHand;
use outboard_pool::api::{Ask, Standing};
use outboard_pool::words::{
    Capability, Condition, Device, Health, OwnerName, Purpose, Request, Server,
};
use std::future::poll_fn;
use std::pin::{Pin, pin};
use std::task::Poll;
use tempfile::tempdir;

/// The answer, if there is one by now.
async fn now<T>(mut answer: Pin<&mut impl Future<Output = Result<T, No>>>) -> Option<T> {
    let polled = poll_fn(|context| Poll::Ready(answer.as_mut().poll(context))).await;
    match polled {
        Poll::Ready(answer) => Some(answer.unwrap()),
        Poll::Pending => None,
    }
}

fn caller(name: &str, role: Role) -> Caller {
    Caller { owner: name.parse().unwrap(), role, token: None }
}

/// A server with one device.
fn beat(condition: Condition) -> Beat {
    let device = Device {
        uuid: "GPU-1".parse().unwrap(),
        model: "H100".into(),
        memory_bytes: 80 << 30,
        capability: Capability { major: 9, minor: 0 },
        nvlink: [].into(),
        load_percent: 0,
        health: Health::Well,
    };
    let server = Server {
        name: "gpu1".parse().unwrap(),
        driver: "580".into(),
        labels: [].into(),
        condition,
        devices: vec![device],
    };
    Beat {
        server,
        address: "gpu1:9470".into(),
        fingerprint: None,
        release: RELEASE.into(),
        in_use: Vec::new(),
        gone: Vec::new(),
        start: None,
    }
}

fn ask(owner: &OwnerName, purpose: &Purpose) -> Ask {
    let request = Request {
        memory_bytes: 1 << 30,
        wait_seconds: 60,
        ..Request::new(owner.clone(), "everybody".parse().unwrap(), 1)
    };
    let purpose = Some(purpose.clone());
    Ask { purpose, ..Ask::new(request, "ab".repeat(32).parse().unwrap()) }
}

/// A leader that has answered with a lease and then is killed must have kept it: the next leader
/// would give its number and its device to somebody else.
#[tokio::test]
async fn nobody_is_told_of_a_lease_before_it_is_kept() {
    let folder = tempdir().unwrap();
    let (keeper, store) = ByHand::keeper();
    let desk = Desk::new(Rules::default(), Memory::default(), Timestamp::now());
    let key = SigningKey::generate().unwrap();
    let of_server = SigningKey::generate().unwrap().public().clone();
    let signers = Signers::new(vec![key], None, true, Timestamp::now()).unwrap();
    let service = Service::new(desk, keeper, signers, Rc::new(Known::open(folder.path())));
    let (server, client) = (caller("servers", Role::Server), caller("ada", Role::Client));
    let purpose: Purpose = "training".parse().unwrap();

    let draining = beat(Condition::Draining);
    let mut drains = pin!(service.beat(&server, Some(&of_server), &draining));
    assert!(now(drains.as_mut()).await.is_none());
    store.keep_one();
    assert!(now(drains).await.is_some());

    // The store takes its time with a request that has to wait ...
    let mut asked = pin!(service.ask(&client, ask(&client.owner, &purpose)));
    assert!(now(asked.as_mut()).await.is_none());
    // ... and meanwhile the server is back, and the request gets a lease.
    let ready = beat(Condition::Ready);
    let mut returns = pin!(service.beat(&server, Some(&of_server), &ready));
    assert!(now(returns.as_mut()).await.is_none());
    service.desk.borrow_mut().tick(Timestamp::now());
    let mut granted = pin!(service.settle());
    assert!(now(granted.as_mut()).await.is_none());
    let whose = service.desk.borrow().whose(LeaseNumber(1));
    assert_eq!(whose.unwrap().owner, client.owner);

    let mut of_purpose = pin!(service.stands_for(&client, &purpose, Duration::ZERO));
    let mut of_number = pin!(service.lease(&client, LeaseNumber(1)));
    assert!(now(of_purpose.as_mut()).await.is_none());
    assert!(now(of_number.as_mut()).await.is_none());
    store.keep_one();
    // The lease is not kept yet.
    assert!(matches!(now(asked).await, Some(Standing::Waiting { .. })));
    assert!(now(of_purpose.as_mut()).await.is_none());
    assert!(now(of_number.as_mut()).await.is_none());
    for _ in 0..4 {
        store.keep_one();
    }
    assert!(now(returns).await.is_some() && now(granted).await.is_some());
    let Some(Standing::Granted(grant)) = now(of_purpose).await else { panic!("it is kept") };
    assert_eq!(grant.number, LeaseNumber(1));
    assert_eq!(now(of_number).await.unwrap().number, LeaseNumber(1));
}
