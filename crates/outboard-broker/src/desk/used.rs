//! What was had: by day, owner, group and model.

use super::kept::{Account, Change, Used};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use outboard_pool::api::UsageView;
use outboard_pool::lease::Lease;
use outboard_pool::words::Granted;
use std::collections::{BTreeMap, BTreeSet};

/// So many days are kept.
const DAYS: i32 = 100;

/// How often it is counted.
const EACH: SignedDuration = SignedDuration::from_secs(1);

/// A longer pause is none in which the broker has seen anything.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// The most accounts with models of their own: servers say what their models are.
const MOST_MODELS: usize = 100_000;

/// Stands for models that are not told apart, or not known.
const OTHERS: &str = "(others)";

/// The account book.
#[derive(Debug, Default)]
pub(super) struct Usage {
    accounts: BTreeMap<Account, Used>,
    /// What has changed since it was kept.
    unkept: BTreeSet<Account>,
    counted: Option<Timestamp>,
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
        let can_tell_models = self.accounts.len() < MOST_MODELS;
        for (lease, granted) in held {
            let model = model(granted).filter(|_| can_tell_models).unwrap_or(OTHERS);
            let (owner, group) = (lease.owner.clone(), lease.group.clone());
            let account = Account { day, owner, group, model: model.to_owned() };
            let used = self.accounts.entry(account.clone()).or_default();
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

    pub(super) fn view(&self) -> Vec<UsageView> {
        let shown = |(account, used): (&Account, &Used)| UsageView {
            day: account.day,
            owner: account.owner.clone(),
            group: account.group.clone(),
            model: account.model.clone(),
            device_seconds: used.device_ms / 1000,
            gib_seconds: used.mib_ms / (1024 * 1000),
        };
        self.accounts.iter().map(shown).collect()
    }
}
