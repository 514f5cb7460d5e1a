//! What everybody may see of a pool, if its administrator wants that: devices and how they are
//! used, and nothing of who uses them, where they are reached or what runs there.

use hyper::body::Bytes;
use outboard_pool::api::{DeviceView, PoolView, ServerView, TicketView};
use outboard_pool::words::{DeviceUuid, OwnerName};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Stands for every name.
const NOBODY: &str = "-";

/// For so long an answer is the same for all: those who ask are strangers, however many.
const SAME_FOR: Duration = Duration::from_secs(1);

/// What everybody gets.
#[derive(Debug, Default)]
pub(crate) struct OpenView {
    made: RefCell<Option<(Instant, Bytes)>>,
}

impl OpenView {
    /// The pool in JSON, which all who ask at about the same time share.
    pub(crate) fn pool(&self, look: impl FnOnce() -> PoolView) -> Option<Bytes> {
        let mut made = self.made.borrow_mut();
        if let Some((when, text)) = &*made
            && when.elapsed() < SAME_FOR
        {
            return Some(text.clone());
        }
        let text = Bytes::from(serde_json::to_vec(&without_names(look())).ok()?);
        *made = Some((Instant::now(), text.clone()));
        Some(text)
    }
}

/// The same without names of people, and without what only they need.
fn without_names(view: PoolView) -> PoolView {
    PoolView {
        release: String::new(),
        policy: view.policy,
        servers: view.servers.into_iter().map(server).collect(),
        leases: Vec::new(),
        queue: view.queue.iter().filter_map(ticket).collect(),
        owners: Vec::new(),
    }
}

fn server(view: ServerView) -> ServerView {
    ServerView {
        name: view.name,
        address: String::new(),
        release: String::new(),
        driver: String::new(),
        labels: BTreeMap::new(),
        condition: view.condition,
        because: view.because.map(|_| "it has to end what is over".into()),
        heard: None,
        devices: (0_usize..).zip(view.devices).filter_map(|(at, view)| device(at, view)).collect(),
    }
}

fn device(at: usize, view: DeviceView) -> Option<DeviceView> {
    let uuid: DeviceUuid = at.to_string().parse().ok()?;
    Some(DeviceView { uuid, leases: Vec::new(), ..view })
}

fn ticket(view: &TicketView) -> Option<TicketView> {
    let owner: OwnerName = NOBODY.parse().ok()?;
    // What it waits for names owners and groups.
    Some(TicketView {
        ticket: 0,
        asked_by: owner.clone(),
        owner,
        purpose: None,
        because: String::new(),
        ..view.clone()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_pool::api::{LeaseView, OwnerView};
    use outboard_pool::state::Quota;
    use outboard_pool::words::{Capability, Condition, Health, LeaseNumber, Use};

    #[test]
    fn no_name_is_seen() {
        let (owner, now) = ("secret-owner".parse::<OwnerName>().unwrap(), jiff::Timestamp::now());
        let group: outboard_pool::words::GroupName = "secret-group".parse().unwrap();
        let device = DeviceView {
            uuid: "GPU-secret".parse().unwrap(),
            model: "H100".into(),
            capability: Capability { major: 9, minor: 0 },
            memory_bytes: 80,
            free_bytes: 70,
            free_percent: 60,
            load_percent: 50,
            health: Health::Well,
            leases: vec![LeaseNumber(17)],
        };
        let server = ServerView {
            name: "gpu1".parse().unwrap(),
            address: "secret:9470".into(),
            release: "secret-release".into(),
            driver: "secret-driver".into(),
            labels: [("secret".parse().unwrap(), "rack".parse().unwrap())].into(),
            condition: Condition::Draining,
            because: Some("secret lease".into()),
            heard: Some(now),
            devices: vec![device],
        };
        let ticket = TicketView {
            ticket: 4711,
            place: 1,
            owner: owner.clone(),
            asked_by: owner.clone(),
            purpose: Some("secret-purpose".parse().unwrap()),
            since: now,
            devices: 2,
            memory_bytes: 3,
            usage: Use::Exclusive,
            because: "secret-owner has all".into(),
        };
        let lease = LeaseView {
            number: LeaseNumber(17),
            owner: owner.clone(),
            group: group.clone(),
            asked_by: owner.clone(),
            purpose: None,
            since: now,
            expires: now,
            renewable_until: now,
            sessions: 1,
            used_bytes: 1,
            over: Some("the admin secret-admin ended it".into()),
            devices: vec![],
        };
        let quota = Quota::default();
        let of = OwnerView { owner, group, devices: 1, memory_bytes: 1, waiting: 1, quota };
        let view = PoolView {
            release: "secret-release".into(),
            policy: "pack".into(),
            servers: vec![server],
            leases: vec![lease],
            queue: vec![ticket],
            owners: vec![of],
        };
        let said = serde_json::to_string(&without_names(view)).unwrap();
        assert!(!said.contains("secret") && !said.contains("4711"), "{said}");
        for seen in ["gpu1", "draining", "H100", "\"free_percent\":60", "\"devices\":2"] {
            assert!(said.contains(seen), "{seen}: {said}");
        }
    }

    #[test]
    fn many_who_ask_share_an_answer() {
        let looks = std::cell::Cell::new(0);
        let look = || {
            looks.set(looks.get() + 1);
            PoolView {
                release: String::new(),
                policy: "pack".into(),
                servers: Vec::new(),
                leases: Vec::new(),
                queue: Vec::new(),
                owners: Vec::new(),
            }
        };
        let open = OpenView::default();
        let first = open.pool(look).unwrap();
        for _ in 0..100 {
            // They share the memory, too.
            assert_eq!(open.pool(look).unwrap().as_ptr(), first.as_ptr());
        }
        assert_eq!(looks.get(), 1);
        let long_ago = Instant::now().checked_sub(SAME_FOR).unwrap();
        *open.made.borrow_mut() = Some((long_ago, first));
        open.pool(look).unwrap();
        assert_eq!(looks.get(), 2);
    }
}
