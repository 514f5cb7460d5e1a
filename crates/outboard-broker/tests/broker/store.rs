//! What is kept survives a kill at any time, in a file and in an etcd, and has one user.

use crate::places::Place;
use crate::world::{World, ask, asker, keep, request, server, speaker};
use outboard_broker::desk::{
    Account, Change, Desk, Former, Keys, Memory, Outcome, Rules, Stands, Used,
};
use outboard_broker::store::{FileStore, StoreError, add_key, signing_keys};
use outboard_pool::api::Point;
use outboard_pool::words::{LeaseNumber, Use};
use outboard_test_support::skip;
use std::collections::BTreeSet;
use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};

use std::process::{Command, Stdio};
use std::time::Duration;
use tempfile::tempdir;

#[test]
fn what_is_kept_in_a_file_is_read_again() {
    is_read_again(&Place::file());
}

#[test]
fn what_is_kept_in_etcd_is_read_again() {
    let Some(place) = Place::etcd(1) else { skip!("there is no etcd") };
    is_read_again(&place);
}

fn is_read_again(place: &Place) {
    let mut world = World::new(Rules::default(), vec![(server(0, 2), 0)]);
    world.beat(0, false).unwrap();
    world.ask(request("ada", 1, Use::Exclusive, 60)).unwrap();
    world.ask(request("bob", 1, Use::Exclusive, 60)).unwrap();
    world.desk.end(LeaseNumber(1), "it was given back", world.now).unwrap();
    world.settle();
    let mut changes: Vec<Change> = Vec::new();
    let memory = &world.memory;
    changes.extend(memory.servers.iter().cloned().map(|server| Change::Server(Box::new(server))));
    changes.extend(memory.leases.iter().cloned().map(|kept| Change::Lease(Box::new(kept))));
    let day = "2026-11-25".parse().unwrap();
    let used = Used { device_ms: 5, mib_ms: 6 };
    for (group, model) in [("speech", "L4"), ("vision", "H100 80GB"), ("vision", "L4")] {
        let (owner, group) = ("ada".parse().unwrap(), group.parse().unwrap());
        changes.push(Change::Used(Account { day, owner, group, model: model.into() }, used));
    }
    let point = Point { devices: 2.0, leased: 0.25, load_percent: 7.5, waiting: 1 };
    changes.extend([Change::Passed(300, point), Change::Passed(600, point)]);
    let former = Former { key: "k4.public.former".into(), until: world.now };
    changes.push(Change::Keys(Keys { signs: "k4.public.present".into(), former: vec![former] }));
    let mut wanted = memory.clone();
    keep(&mut wanted, changes.clone());
    {
        let mut store = place.open();
        assert_eq!(store.memory().unwrap(), Memory { next: 1, ..Memory::default() });
        store.keep(&changes).unwrap();
    }
    let mut store = place.open();
    let mut read = store.memory().unwrap();
    read.leases.sort_by_key(|kept| kept.lease.number);
    wanted.leases.sort_by_key(|kept| kept.lease.number);
    assert_eq!(read, wanted);
    store.keep(&[Change::Freed(LeaseNumber(1)), Change::Freed(LeaseNumber(2))]).unwrap();
    store.keep(&[Change::NoPassed(600)]).unwrap();
    assert_eq!(store.memory().unwrap().passed, [(600, point)]);
    store.keep(&[Change::NoPassed(601)]).unwrap();
    store.keep(&[Change::NoDay(day), Change::Forgotten("gpu0".parse().unwrap())]).unwrap();
    let read = store.memory().unwrap();
    let rest = Memory { next: 3, keys: wanted.keys, ..Memory::default() };
    assert_eq!(read, rest, "numbers do not repeat");
    drop(store);
    // More than one transaction or answer of etcd has.
    let passed = |at: i64| Change::Passed(at * 60, Point { waiting: at as u32, ..point });
    place.open().keep(&(0..1000).map(passed).collect::<Vec<_>>()).unwrap();
    let read = place.open().memory().unwrap().passed;
    let is_right = |(at, (second, point)): (i64, &(i64, Point))| {
        *second == at * 60 && i64::from(point.waiting) == at
    };
    assert!(read.len() == 1000 && (0..).zip(&read).all(is_right));
}

#[test]
fn two_brokers_do_not_share_a_file() {
    let folder = tempdir().unwrap();
    let first = FileStore::open(folder.path()).unwrap();
    let error = FileStore::open(folder.path()).unwrap_err();
    assert!(matches!(error, StoreError::InUse { .. }));
    assert!(error.to_string().starts_with("another broker uses "), "{error}");
    drop(first);
    FileStore::open(folder.path()).unwrap();
}

#[test]
fn the_file_is_its_users_alone() {
    let folder = tempdir().unwrap();
    drop(FileStore::open(folder.path()).unwrap());
    let mode = |name: &str| std::fs::metadata(folder.path().join(name)).unwrap().mode() & 0o777;
    assert_eq!(mode("pool.redb"), 0o600);
    let keys = |may_make| signing_keys(folder.path(), may_make);
    let texts = || -> Vec<String> {
        keys(false).unwrap().iter().map(|key| key.public().to_text()).collect()
    };
    assert!(texts().is_empty(), "none is made where that may not be");
    let key = keys(true).unwrap()[0].public().to_text();
    assert_eq!((mode("lease.key"), texts()), (0o600, vec![key.clone()]));
    // A new one comes before it, and does not replace it.
    let newer = add_key(folder.path()).unwrap();
    assert_eq!((mode("lease.key"), texts()), (0o600, vec![newer, key]));
    let path = folder.path().join("lease.key");
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(keys(true).unwrap_err().to_string().contains("chmod 600"));
    std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::write(&path, "k4.secret.nonsense\n").unwrap();
    assert!(keys(true).unwrap_err().to_string().contains("no key to sign"));
}

#[test]
fn a_damaged_file_is_no_empty_one() {
    let folder = tempdir().unwrap();
    drop(FileStore::open(folder.path()).unwrap());
    std::fs::write(folder.path().join("pool.redb"), vec![7; 4096]).unwrap();
    let error = FileStore::open(folder.path()).unwrap_err();
    assert!(error.to_string().contains("cannot be used"), "{error}");
}

/// The variable by which the child of the tests below knows its place.
const CHILD: &str = "OUTBOARD_TEST_STORE";

fn say(line: &str) {
    let mut output = std::io::stdout();
    writeln!(output, "{line}").and_then(|()| output.flush()).expect("somebody reads");
}

/// Grants leases as fast as it can and says so, each once it is kept, until it is killed.
fn grant_for_ever(place: &Place) -> ! {
    let mut store = place.open();
    let now = jiff::Timestamp::now();
    let mut desk = Desk::new(Rules::default(), store.memory().expect("it can be read"), now);
    let beat = outboard_pool::api::Beat {
        server: server(0, 64),
        address: "gpu0:1".into(),
        fingerprint: None,
        release: String::new(),
        in_use: Vec::new(),
        gone: Vec::new(),
        start: Some(1),
    };
    let by = speaker("servers");
    let (mut told, mut owner) = (Vec::new(), 0);
    loop {
        let now = jiff::Timestamp::now();
        let heard = desk.beat(&by, &outboard_pool::api::Beat { gone: told, ..beat.clone() }, now);
        told = heard.expect("it may").ended.into_iter().map(|(lease, _)| lease).collect();
        store.keep(&desk.take_changes()).expect("it can be kept");
        // One owner alone may not have as many.
        owner += 1;
        let owner = format!("ada{}", owner % 64);
        let asked = ask(request(&owner, 1, Use::Exclusive, 1));
        let ticket = desk.ask(asked, asker(&owner), now);
        let granted = match ticket.and_then(|ticket| desk.stands(ticket, now)) {
            Ok(Stands::Settled(Outcome::Granted(number))) => Some(number),
            _ => None,
        };
        store.keep(&desk.take_changes()).expect("it can be kept");
        if let Some(number) = granted {
            let device = &desk.lease(number).expect("it is granted").devices[0].device;
            say(&format!("granted {} {device}", number.0));
        }
        // Most are given back.
        if let Some(number) = granted.filter(|number| number.0 % 32 != 0) {
            desk.end(number, "it was given back", now).expect("it is there");
            store.keep(&desk.take_changes()).expect("it can be kept");
            say(&format!("ended {}", number.0));
        }
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// If this is the child of one of the tests below, it is that for ever.
fn be_the_child() {
    if let Some(place) = std::env::var_os(CHILD) {
        grant_for_ever(&Place::named(&place.to_string_lossy()));
    }
}

#[test]
fn a_kill_at_any_time_loses_no_lease_and_grants_none_twice() {
    be_the_child();
    let test = "store::a_kill_at_any_time_loses_no_lease_and_grants_none_twice";
    survives_kills(&Place::file(), test, &Kills { rounds: 25, grants: 60, within_ms: 120 });
}

#[test]
fn a_kill_at_any_time_loses_nothing_in_etcd() {
    be_the_child();
    let Some(place) = Place::etcd(1) else { skip!("there is no etcd") };
    let test = "store::a_kill_at_any_time_loses_nothing_in_etcd";
    // Each has to wait until the one before leads no more.
    survives_kills(&place, test, &Kills { rounds: 4, grants: 20, within_ms: 4000 });
}

/// How often and how soon.
struct Kills {
    rounds: u32,
    /// So many leases have to be granted in all.
    grants: usize,
    within_ms: u64,
}

/// A process that grants is killed at some time, again and again.
fn survives_kills(place: &Place, test: &str, kills: &Kills) {
    let mut numbers = BTreeSet::new();
    let mut over = BTreeSet::new();
    let mut seed = 88172645463325252_u64;
    for round in 0.. {
        // On a busy machine most processes are killed before they have granted anything.
        if round >= kills.rounds && numbers.len() > kills.grants {
            break;
        }
        assert!(round < 500, "there were {} grants", numbers.len());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", test])
            .args(["--nocapture", "--test-threads=1"])
            .env(CHILD, place.name())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = child.stdout.take().unwrap();
        let reader = std::thread::spawn(move || {
            let lines = BufReader::new(output).lines().map_while(Result::ok);
            lines.collect::<Vec<String>>()
        });
        // Any time, also while the file is opened.
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        std::thread::sleep(Duration::from_micros(seed % (kills.within_ms * 1000)));
        child.kill().unwrap();
        child.wait().unwrap();
        let lines = reader.join().unwrap();
        let mut granted_now = BTreeSet::new();
        for line in &lines {
            let mut words = line.split_whitespace();
            match (words.next(), words.next().and_then(|number| number.parse::<u64>().ok())) {
                (Some("granted"), Some(number)) => {
                    assert!(numbers.insert(number), "round {round}: {number} was granted twice");
                    granted_now.insert(number);
                }
                (Some("ended"), Some(number)) => {
                    over.insert(number);
                }
                _ => {}
            }
        }
        let memory = place.open().memory().unwrap();
        let kept: BTreeSet<u64> = memory.leases.iter().map(|kept| kept.lease.number.0).collect();
        let lost: Vec<_> = granted_now.difference(&kept).collect();
        assert!(lost.is_empty(), "round {round}: {lost:?} are lost");
        for ended in memory.leases.iter().filter(|kept| over.contains(&kept.lease.number.0)) {
            assert!(ended.over.is_some(), "round {round}: {} lives", ended.lease.number);
        }
        let last = numbers.last().copied().unwrap_or(0);
        assert!(memory.next > last, "round {round}: {} would be granted again", memory.next);
        let held = memory.leases.iter().filter(|kept| kept.has_devices());
        let devices: Vec<_> = held.map(|kept| &kept.lease.devices[0].device).collect();
        let distinct: BTreeSet<_> = devices.iter().collect();
        assert_eq!(distinct.len(), devices.len(), "round {round}: a device is given twice");
    }
}

/// A broker that is killed while it makes the file leaves one of which the first bytes are missing.
#[test]
fn a_file_that_was_never_finished_is_put_aside() {
    let folder = tempdir().unwrap();
    let path = folder.path().join("pool.redb");
    let unfinished = [&[0_u8; 4096][..], b"more"].concat();
    std::fs::write(&path, &unfinished).unwrap();
    let store = FileStore::open(folder.path()).expect("a new one");
    assert_eq!(store.memory().unwrap(), Memory { next: 1, ..Memory::default() });
    assert!(matches!(FileStore::open(folder.path()), Err(StoreError::InUse { .. })));
    drop(store);
    assert_eq!(std::fs::read(folder.path().join("pool.redb.unfinished")).unwrap(), unfinished);
    // What is no file of this kind stays where it is.
    std::fs::write(&path, b"a text of somebody's").unwrap();
    assert!(matches!(FileStore::open(folder.path()), Err(StoreError::Unusable { .. })));
    assert_eq!(std::fs::read(&path).unwrap(), b"a text of somebody's");
}

#[test]
fn use_that_a_release_before_has_noted_is_taken_over() {
    let folder = tempdir().unwrap();
    drop(FileStore::open(folder.path()).unwrap());
    {
        let file = redb::Database::create(folder.path().join("pool.redb")).unwrap();
        let work = file.begin_write().unwrap();
        let former: redb::TableDefinition<(&str, &str), &[u8]> = redb::TableDefinition::new("used");
        let had = br#"{"device_ms":5,"mib_ms":6}"#.as_slice();
        work.open_table(former).unwrap().insert(("2026-11-25", "ada"), had).unwrap();
        work.commit().unwrap();
    }
    for _ in 0..2 {
        let used = FileStore::open(folder.path()).unwrap().memory().unwrap().used;
        let account = Account {
            day: "2026-11-25".parse().unwrap(),
            owner: "ada".parse().unwrap(),
            group: "unknown".parse().unwrap(),
            model: "unknown".into(),
        };
        assert_eq!(used, [(account, Used { device_ms: 5, mib_ms: 6 })]);
    }
}
