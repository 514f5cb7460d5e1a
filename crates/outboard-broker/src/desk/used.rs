//! What owners have had, by day.

use super::kept::{Change, Used};
use jiff::civil::Date;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};
use outboard_pool::api::UsageView;
use outboard_pool::words::{Granted, OwnerName};
use std::collections::{BTreeMap, BTreeSet};

/// So many days are kept.
const DAYS: i32 = 100;

/// How often it is counted.
const EACH: SignedDuration = SignedDuration::from_secs(1);

/// A longer pause is none in which the broker has seen anything.
const LONGEST_PAUSE: SignedDuration = SignedDuration::from_secs(60);

/// The account book.
#[derive(Debug, Default)]
pub(super) struct Usage {
    days: BTreeMap<(Date, OwnerName), Used>,
    /// What has changed since it was kept.
    unkept: BTreeSet<(Date, OwnerName)>,
    counted: Option<Timestamp>,
}

impl Usage {
    pub(super) fn restore(&mut self, day: Date, owner: OwnerName, used: Used) {
        self.days.insert((day, owner), used);
    }

    /// Counts what they have had since the last call.
    pub(super) fn count<'a>(
        &mut self,
        now: Timestamp,
        held: impl Iterator<Item = (&'a OwnerName, &'a [Granted])>,
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
        for (owner, granted) in held {
            let key = (day, owner.clone());
            let used = self.days.entry(key.clone()).or_default();
            for one in granted {
                used.device_ms += ms * u64::from(one.usage.share().percent()) / 100;
                used.mib_ms += ms * (one.memory_bytes >> 20);
            }
            self.unkept.insert(key);
        }
    }

    /// What is to be kept.
    pub(super) fn take_changes(&mut self, now: Timestamp) -> Vec<Change> {
        let mut changes = Vec::new();
        for (day, owner) in std::mem::take(&mut self.unkept) {
            let used = self.days.get(&(day, owner.clone())).copied().unwrap_or_default();
            changes.push(Change::Used(day, owner, used));
        }
        let today = now.to_zoned(TimeZone::UTC).date();
        let old = |day: &Date| (today - *day).get_days() > DAYS;
        let gone: BTreeSet<Date> = self.days.keys().map(|(day, _)| *day).take_while(old).collect();
        self.days.retain(|(day, _), _| !gone.contains(day));
        changes.extend(gone.into_iter().map(Change::NoDay));
        changes
    }

    pub(super) fn view(&self) -> Vec<UsageView> {
        let shown = |((day, owner), used): (&(Date, OwnerName), &Used)| UsageView {
            day: *day,
            owner: owner.clone(),
            device_seconds: used.device_ms / 1000,
            gib_seconds: used.mib_ms / (1024 * 1000),
        };
        self.days.iter().map(shown).collect()
    }
}
