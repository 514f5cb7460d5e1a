//! What was had, added up.

use clap::ValueEnum;
use jiff::civil::Date;
use outboard_pool::api::UsageView;
use serde_json::{Value, json};
use std::collections::BTreeMap;

use super::Table;

/// By what use is added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum By {
    Owner,
    Group,
    Model,
}

impl By {
    fn name(self) -> &'static str {
        match self {
            By::Owner => "owner",
            By::Group => "group",
            By::Model => "model",
        }
    }

    fn of(self, used: &UsageView) -> &str {
        match self {
            By::Owner => used.owner.as_str(),
            By::Group => used.group.as_str(),
            By::Model => &used.model,
        }
    }
}

/// Use on a day, added up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Sum {
    device_seconds: u64,
    gib_seconds: u64,
}

/// What was had by day and by owners, groups or models.
pub(super) struct Sums {
    by: By,
    all: BTreeMap<(Date, String), Sum>,
}

impl Sums {
    pub(super) fn of(usage: &[UsageView], by: By) -> Sums {
        let mut all: BTreeMap<(Date, String), Sum> = BTreeMap::new();
        for used in usage {
            let sum = all.entry((used.day, by.of(used).to_owned())).or_default();
            sum.device_seconds = sum.device_seconds.saturating_add(used.device_seconds);
            sum.gib_seconds = sum.gib_seconds.saturating_add(used.gib_seconds);
        }
        Sums { by, all }
    }

    pub(super) fn json(&self) -> Vec<Value> {
        let row = |((day, name), sum): (&(Date, String), &Sum)| {
            json!({
                "day": day,
                self.by.name(): name,
                "device_seconds": sum.device_seconds,
                "gib_seconds": sum.gib_seconds,
            })
        };
        self.all.iter().map(row).collect()
    }

    pub(super) fn table(&self) -> Table {
        let head = match self.by {
            By::Owner => "OWNER",
            By::Group => "GROUP",
            By::Model => "MODEL",
        };
        let row = |((day, name), sum): (&(Date, String), &Sum)| {
            let (devices, memory) = (sum.device_seconds, sum.gib_seconds);
            vec![day.to_string(), name.clone(), devices.to_string(), memory.to_string()]
        };
        let rows = self.all.iter().map(row).collect();
        Table { heads: vec!["DAY", head, "DEVICE SECONDS", "GIB SECONDS"], rows, none: NONE }
    }
}

const NONE: &str = "Nobody has had anything.";

/// All of it, as the broker counts it.
pub(super) fn table(usage: &[UsageView]) -> Table {
    let row = |used: &UsageView| {
        vec![
            used.day.to_string(),
            used.owner.to_string(),
            used.group.to_string(),
            used.model.clone(),
            used.device_seconds.to_string(),
            used.gib_seconds.to_string(),
        ]
    };
    let heads = vec!["DAY", "OWNER", "GROUP", "MODEL", "DEVICE SECONDS", "GIB SECONDS"];
    Table { heads, rows: usage.iter().map(row).collect(), none: NONE }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn used(day: &str, owner: &str, group: &str, model: &str, seconds: u64) -> UsageView {
        UsageView {
            day: day.parse().unwrap(),
            owner: owner.parse().unwrap(),
            group: group.parse().unwrap(),
            model: model.into(),
            device_seconds: seconds,
            gib_seconds: 10 * seconds,
        }
    }

    #[test]
    fn use_is_added_up_by_what_is_asked_for() {
        let usage = [
            used("2026-11-24", "ada", "vision", "H100", 1),
            used("2026-11-25", "ada", "vision", "H100", 2),
            used("2026-11-25", "ada", "vision", "L4", 4),
            used("2026-11-25", "bob", "vision", "L4", 8),
            used("2026-11-25", "eve", "speech", "L4", 16),
        ];
        let rows = |by| {
            let rows = Sums::of(&usage, by).table().rows;
            rows.iter().map(|row| row[..3].join(" ")).collect::<Vec<_>>()
        };
        let (before, today) = ("2026-11-24", "2026-11-25");
        assert_eq!(
            rows(By::Owner),
            [
                format!("{before} ada 1"),
                format!("{today} ada 6"),
                format!("{today} bob 8"),
                format!("{today} eve 16")
            ]
        );
        assert_eq!(
            rows(By::Group),
            [
                format!("{before} vision 1"),
                format!("{today} speech 16"),
                format!("{today} vision 14")
            ]
        );
        assert_eq!(
            rows(By::Model),
            [format!("{before} H100 1"), format!("{today} H100 2"), format!("{today} L4 28")]
        );
        let json = Sums::of(&usage, By::Group).json();
        let wanted = json!({
            "day": today, "group": "speech", "device_seconds": 16, "gib_seconds": 160,
        });
        assert_eq!(json[1], wanted);
    }
}
