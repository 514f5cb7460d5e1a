//! What was had: by day, owner, group and model.

use super::kept::{Account, Change, Used};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use outboard_pool::api::{UsageTold, UsageView};
use outboard_pool::lease::Lease;
use outboard_pool::words::{Granted, OwnerName};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;

/// So many days are kept.
const DAYS: i32 = 100;

/// How often it is counted.
const EACH: SignedDuration = SignedDuration::from_secs(1);

/// A longer pause is none in which the broker has seen anything.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// The most accounts of a day, besides the one of all others: schedulers say whose leases they are.
const MOST_OF_A_DAY: usize = 8192;

/// The most accounts of a day among which models are told apart: servers say what these are.
const MOST_WITH_MODELS: usize = MOST_OF_A_DAY / 2;

/// The most accounts of an owner on a day, besides one of all the owner's others.
const MOST_OF_AN_OWNER: usize = 64;

/// About how many accounts are told at once.
const MOST_TOLD: usize = 4096;

/// Stands for models that are not told apart, or not known.
const OTHER_MODELS: &str = "(others)";

/// Stands for groups and owners that are not told apart.
const OTHERS: &str = "+others";

/// The account book.
#[derive(Debug, Default)]
pub(super) struct Usage {
    accounts: BTreeMap<Account, Used>,
    /// What has changed since it was kept.
    unkept: BTreeSet<Account>,
    counted: Option<Timestamp>,
    today: Today,
}

/// How many accounts the day has on which it was counted last.
#[derive(Debug, Default)]
struct Today {
    day: Date,
    all: usize,
    of_owners: BTreeMap<OwnerName, usize>,
}

impl Today {
    fn of(day: Date, accounts: &BTreeMap<Account, Used>) -> Today {
        let mut today = Today { day, ..Today::default() };
        let newest_first = accounts.keys().rev();
        newest_first
            .take_while(|account| account.day >= day)
            .for_each(|account| today.add(account));
        today
    }

    fn add(&mut self, account: &Account) {
        self.all += 1;
        *self.of_owners.entry(account.owner.clone()).or_default() += 1;
    }

    /// The account to which something is added that would have that one, as detailed as there is
    /// room for.
    fn account(&self, exact: Account, is_there: impl Fn(&Account) -> bool) -> Account {
        let of_owner = self.of_owners.get(&exact.owner).copied().unwrap_or(0);
        let has_room = of_owner < MOST_OF_AN_OWNER;
        if is_there(&exact) || (has_room && self.all < MOST_WITH_MODELS) {
            return exact;
        }
        let of_group = Account { model: OTHER_MODELS.to_owned(), ..exact };
        if is_there(&of_group) || (has_room && self.all < MOST_OF_A_DAY) {
            return of_group;
        }
        let group = OTHERS.parse().expect("it is a name");
        let of_owner = Account { group, ..of_group };
        if is_there(&of_owner) || (!has_room && self.all < MOST_OF_A_DAY) {
            return of_owner;
        }
        let owner = OTHERS.parse().expect("it is a name");
        Account { owner, ..of_owner }
    }
}

impl Usage {
    pub(super) fn restore(&mut self, account: Account, used: Used) {
        self.accounts.insert(account, used);
    }

    /// Counts what leases have had since the last call.
    pub(super) fn count<'a, 'b>(
        &mut self,
        now: Timestamp,
        held: impl Iterator<Item = (&'a Lease, &'a Granted)>,
        model: impl Fn(&Granted) -> Option<&'b str>,
    ) {
        let passed = now.duration_since(*self.counted.get_or_insert(now));
        // A clock that was set back begins anew.
        if passed < EACH && !passed.is_negative() {
            return;
        }
        self.counted = Some(now);
        let passed = passed.clamp(SignedDuration::ZERO, LONGEST_PAUSE);
        let ms = u64::try_from(passed.as_millis()).unwrap_or(0);
        let day = now.to_zoned(TimeZone::UTC).date();
        if self.today.day != day {
            self.today = Today::of(day, &self.accounts);
        }
        for (lease, granted) in held {
            let model = model(granted).unwrap_or(OTHER_MODELS).to_owned();
            let (owner, group) = (lease.owner.clone(), lease.group.clone());
            let exact = Account { day, owner, group, model };
            let account = self.today.account(exact, |one| self.accounts.contains_key(one));
            let used = self.accounts.entry(account.clone()).or_insert_with(|| {
                self.today.add(&account);
                Used::default()
            });
            used.device_ms += ms * u64::from(granted.usage.share().percent()) / 100;
            used.mib_ms += ms * (granted.memory_bytes >> 20);
            self.unkept.insert(account);
        }
    }

    /// What is to be kept.
    pub(super) fn take_changes(&mut self, now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for account in std::mem::take(&mut self.unkept) {
            let used = self.accounts.get(&account).copied().unwrap_or_default();
            changes.push(Change::Used(account, used));
        }
        let today = now.to_zoned(TimeZone::UTC).date();
        let old = |day: &Date| (today - *day).get_days() > DAYS;
        let days = self.accounts.keys().map(|account| account.day);
        let gone: BTreeSet<Date> = days.take_while(old).collect();
        self.accounts.retain(|account, _| !gone.contains(&account.day));
        changes.extend(gone.into_iter().map(Change::NoDay));
        changes
    }

    /// The accounts after those that were told, in order, about as many as are told at once.
    pub(super) fn page(&self, told: Option<&UsageTold>) -> Vec<UsageView> {
        let key = |account: &Account| UsageTold {
            day: account.day,
            owner: account.owner.clone(),
            group: account.group.clone(),
        };
        // The first one that it can be: models follow.
        let from = told.map_or(Bound::Unbounded, |told| {
            let (owner, group) = (told.owner.clone(), told.group.clone());
            Bound::Included(Account { day: told.day, owner, group, model: String::new() })
        });
        let rest = self.accounts.range((from, Bound::Unbounded));
        let rest = rest.filter(|(account, _)| told.is_none_or(|told| key(account) != *told));
        let (mut page, mut last) = (Vec::new(), None);
        for (account, used) in rest {
            let of = key(account);
            if page.len() >= MOST_TOLD && last.as_ref() != Some(&of) {
                break;
            }
            last = Some(of);
            page.push(UsageView {
                day: account.day,
                owner: account.owner.clone(),
                group: account.group.clone(),
                model: account.model.clone(),
                device_seconds: used.device_ms / 1000,
                gib_seconds: used.mib_ms / (1024 * 1000),
            });
        }
        page
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_pool::words::{LeaseNumber, MayShare, Use};

    fn lease(owner: &str, group: &str) -> Lease {
        let now = Timestamp::UNIX_EPOCH;
        Lease {
            number: LeaseNumber(1),
            owner: owner.parse().unwrap(),
            group: group.parse().unwrap(),
            devices: vec![Granted {
                server: "gpu1".parse().unwrap(),
                device: "GPU-1".parse().unwrap(),
                memory_bytes: 1 << 30,
                usage: Use::Exclusive,
            }],
            priority: 0,
            not_before: now,
            expires: now,
            renewable_until: now,
            client_key: "ab".repeat(32).parse().unwrap(),
            may_share: MayShare::Keys(Vec::new()),
        }
    }

    /// Each of them has a device of a model for ten seconds.
    fn count(usage: &mut Usage, from: Timestamp, leases: &[Lease], model: &str) {
        let held = || leases.iter().flat_map(|one| one.devices.iter().map(move |had| (one, had)));
        for seconds in [0, 10] {
            usage.count(from + SignedDuration::from_secs(seconds), held(), |_| Some(model));
        }
    }

    fn whole(usage: &Usage) -> Vec<UsageView> {
        let mut all: Vec<UsageView> = Vec::new();
        loop {
            let told = all.last().map(UsageTold::from);
            let page = usage.page(told.as_ref());
            assert!(page.len() <= MOST_TOLD + MOST_OF_AN_OWNER + 1, "{}", page.len());
            if page.is_empty() {
                return all;
            }
            all.extend(page);
        }
    }

    #[test]
    fn many_owners_make_bounded_accounts_and_nothing_is_lost() {
        let mut usage = Usage::default();
        let morning: Timestamp = "2026-11-25T08:00:00Z".parse().unwrap();
        let leases: Vec<Lease> =
            (0..20_000).map(|at| lease(&format!("owner{at}"), "everybody")).collect();
        count(&mut usage, morning, &leases, "H100");
        let all = whole(&usage);
        assert_eq!(all.len(), MOST_OF_A_DAY + 1);
        assert_eq!(all.iter().filter(|used| used.model == "H100").count(), MOST_WITH_MODELS);
        assert_eq!(all.iter().map(|used| used.device_seconds).sum::<u64>(), 20_000 * 10);
        let others = all.iter().find(|used| used.owner.as_str() == OTHERS).unwrap();
        assert_eq!(others.device_seconds, (20_000 - MOST_OF_A_DAY as u64) * 10);
        let bytes = serde_json::to_vec(&usage.page(None)).unwrap().len();
        assert!(bytes < 2 << 20, "{bytes}");
        // A broker that is started anew counts on in the same accounts.
        let mut next = Usage::default();
        for (account, used) in &usage.accounts {
            next.restore(account.clone(), *used);
        }
        count(&mut next, morning + SignedDuration::from_secs(60), &leases, "H100");
        assert_eq!(whole(&next).len(), all.len());
        // The next day has room of its own.
        count(&mut next, morning + SignedDuration::from_hours(24), &leases[19_990..], "H100");
        assert_eq!(whole(&next).len(), all.len() + 10);
    }

    #[test]
    fn one_owner_leaves_room_for_the_accounts_of_others() {
        let mut usage = Usage::default();
        let morning: Timestamp = "2026-11-25T08:00:00Z".parse().unwrap();
        for at in 0..1000 {
            let from = morning + SignedDuration::from_secs(20 * at);
            // As a scheduler may ask, on devices that a server may describe.
            let leases = [lease("eve", &format!("group{}", at / 2))];
            count(&mut usage, from, &leases, &format!("model{at}"));
        }
        count(&mut usage, morning + SignedDuration::from_hours(8), &[lease("bob", "vision")], "L4");
        let all = whole(&usage);
        let of_eve = all.iter().filter(|used| used.owner.as_str() == "eve");
        assert_eq!(of_eve.count(), MOST_OF_AN_OWNER + 1);
        let of_bob = all.iter().find(|used| used.owner.as_str() == "bob").unwrap();
        assert_eq!((of_bob.group.as_str(), &*of_bob.model), ("vision", "L4"));
    }
}
