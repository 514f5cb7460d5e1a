//! What everybody may see of a pool, if its administrator wants that: devices and how they are
//! used, and nothing of who uses them, where they are reached or what runs there.

use hyper::body::Bytes;
use outboard_pool::api::{DeviceView, PoolView, ServerView, TicketView, Told};
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
    made: RefCell<Option<(Instant, Vec<Bytes>)>>,
}

impl OpenView {
    /// What of the pool comes after that, in JSON. All who ask at about the same time share it.
    pub(crate) fn pool(&self, told: &Told, look: impl Fn(&Told) -> PoolView) -> Option<Bytes> {
        let mut made = self.made.borrow_mut();
        let is_old = |(when, _): &(Instant, _)| when.elapsed() >= SAME_FOR;
        if made.as_ref().is_none_or(is_old) {
            *made = Some((Instant::now(), all_pages(look)?));
        }
        let (_, pages) = made.as_ref()?;
        let place = usize::try_from(told.ticket.unwrap_or(0)).ok()?;
        // There may be fewer by now.
        pages.get(place).or(pages.last()).cloned()
    }
}

/// All pages. What the broker has told of others says names: the next one is known by its place.
fn all_pages(look: impl Fn(&Told) -> PoolView) -> Option<Vec<Bytes>> {
    let mut pages = Vec::new();
    let mut next = Some(Told::default());
    while let Some(told) = next {
        let mut page = look(&told);
        next = page.next.take();
        let mut shown = without_names(page);
        let following = u64::try_from(pages.len() + 1).ok();
        shown.next = next.is_some().then(|| Told { ticket: following, ..Told::default() });
        pages.push(Bytes::from(serde_json::to_vec(&shown).ok()?));
    }
    Some(pages)
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
        next: None,
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
            next: None,
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
        let look = |_: &Told| {
            looks.set(looks.get() + 1);
            PoolView {
                release: String::new(),
                policy: "pack".into(),
                servers: Vec::new(),
                leases: Vec::new(),
                queue: Vec::new(),
                owners: Vec::new(),
                next: None,
            }
        };
        let open = OpenView::default();
        let first = open.pool(&Told::default(), look).unwrap();
        for _ in 0..100 {
            // They share the memory, too.
            assert_eq!(open.pool(&Told::default(), look).unwrap().as_ptr(), first.as_ptr());
        }
        assert_eq!(looks.get(), 1);
        let long_ago = Instant::now().checked_sub(SAME_FOR).unwrap();
        *open.made.borrow_mut() = Some((long_ago, vec![first]));
        open.pool(&Told::default(), look).unwrap();
        assert_eq!(looks.get(), 2);
    }

    #[test]
    fn the_next_page_is_known_by_its_place_and_not_by_names() {
        let look = |told: &Told| {
            let page = told.ticket.unwrap_or(70);
            let owner = Some("secret-owner".parse().unwrap());
            PoolView {
                release: String::new(),
                policy: format!("page {page}"),
                servers: Vec::new(),
                leases: Vec::new(),
                queue: Vec::new(),
                owners: Vec::new(),
                next: (page < 72).then(|| Told { ticket: Some(page + 1), owner, ..told.clone() }),
            }
        };
        let open = OpenView::default();
        let (mut told, mut seen) = (Some(Told::default()), Vec::new());
        while let Some(after) = told {
            let text = open.pool(&after, look).unwrap();
            assert!(!String::from_utf8_lossy(&text).contains("secret"));
            let page: PoolView = serde_json::from_slice(&text).unwrap();
            (told, seen) = (page.next, [seen, vec![page.policy]].concat());
        }
        assert_eq!(seen, ["page 70", "page 71", "page 72"]);
    }
}
