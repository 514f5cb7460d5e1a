//! Brokers of one etcd: one leads, and what others send changes nothing.

use crate::places::{Place, cluster, elected};
use outboard_broker::desk::Change;
use outboard_broker::store::{Candidate, StoreError};
use outboard_pool::api::Point;
use outboard_test_support::etcd::Etcd;
use outboard_test_support::skip;
use std::time::{Duration, Instant};
use tokio::task::spawn_blocking;

fn passed(waiting: u32) -> [Change; 1] {
    [Change::Passed(300, Point { waiting, ..Point::default() })]
}

fn candidate(url: &str, name: &str) -> Candidate {
    Candidate::new(cluster(url), format!("https://{name}:1"))
}

#[tokio::test]
async fn one_leads_and_a_former_leader_writes_nothing() {
    let Some(etcd) = Etcd::start(1) else { skip!("there is no etcd") };
    let url = etcd.url();
    let (mut first, mut second) = (candidate(&url, "first"), candidate(&url, "second"));
    assert_eq!(second.leader().await.unwrap(), None);
    let (leadership, mut former) = elected(&mut first).await;
    assert_eq!(second.leader().await.unwrap().as_deref(), Some("https://first:1"));
    assert!(second.stand().await.unwrap().is_none(), "there is one already");
    let former = spawn_blocking(move || {
        former.memory().unwrap();
        former.keep(&passed(1)).unwrap();
        former
    });
    let mut former = former.await.unwrap();

    // It says nothing any more, as one that is stopped or cut off.
    let begun = Instant::now();
    let (_present, mut store) = elected(&mut second).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(5), "it took {took:?}");
    assert!(!leadership.is_sure(), "it has stopped answering before");
    let done = spawn_blocking(move || {
        store.memory().unwrap();
        store.keep(&passed(2)).unwrap();
        let late = former.keep(&passed(3)).unwrap_err();
        assert!(matches!(late, StoreError::NoLongerLeads(_)), "{late}");
        assert_eq!(store.memory().unwrap().passed[0].1.waiting, 2);
    });
    done.await.unwrap();
    eprintln!("another one led after {took:?}");
}

#[tokio::test]
async fn one_that_resigns_is_followed_at_once() {
    let Some(etcd) = Etcd::start(1) else { skip!("there is no etcd") };
    let (mut first, mut second) = (candidate(&etcd.url(), "a"), candidate(&etcd.url(), "b"));
    let (leadership, _store) = elected(&mut first).await;
    let begun = Instant::now();
    leadership.resign().await;
    assert!(!leadership.is_sure());
    elected(&mut second).await;
    let took = begun.elapsed();
    assert!(took < Duration::from_secs(1), "it took {took:?}");
}

#[test]
fn what_a_stopped_member_does_late_changes_nothing() {
    let Some(place) = Place::etcd(3) else { skip!("there is no etcd") };
    let Place::Etcd(_, Some(etcd)) = &place else { panic!("it was started") };
    let mut store = place.open();
    store.memory().unwrap();
    store.keep(&passed(1)).unwrap();
    // The member to which the store is connected gets a transaction that another one does in its
    // place, and does it once it goes on.
    etcd.stop(0);
    store.keep(&passed(2)).unwrap();
    store.keep(&passed(3)).unwrap();
    etcd.go_on(0);
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(store.memory().unwrap().passed[0].1.waiting, 3);
    store.keep(&passed(4)).unwrap();
    assert_eq!(store.memory().unwrap().passed[0].1.waiting, 4);
}
