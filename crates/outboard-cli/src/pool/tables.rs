//! The pool as tables.

use outboard_pool::api::{PoolView, ServerView, Why};
use outboard_pool::words::{Condition, Granted, Health, Size, Use};

use super::Table;

/// A table for people: columns as wide as their widest cell.
pub(super) fn text(table: &Table) -> String {
    if table.rows.is_empty() {
        return format!("{}\n", table.none);
    }
    let heads: Vec<String> = table.heads.iter().map(|head| (*head).to_owned()).collect();
    let lines: Vec<&Vec<String>> = std::iter::once(&heads).chain(&table.rows).collect();
    let width = |column: usize| {
        lines.iter().map(|line| line[column].chars().count()).max().unwrap_or_default()
    };
    let widths: Vec<usize> = (0..heads.len()).map(width).collect();
    let mut text = String::new();
    for line in lines {
        let cells = line.iter().zip(&widths).map(|(cell, width)| format!("{cell:<width$}"));
        text.push_str(cells.collect::<Vec<_>>().join("  ").trim_end());
        text.push('\n');
    }
    text
}

/// How a server stands, in a word.
pub(crate) fn condition(server: &ServerView) -> &'static str {
    match server.condition {
        Condition::Ready => "ready",
        Condition::Draining if server.because.is_some() => "owes",
        Condition::Draining => "draining",
        Condition::Silent => "silent",
    }
}

pub(super) fn devices(view: &PoolView) -> Table {
    let mut rows = Vec::new();
    for server in &view.servers {
        let condition = condition(server);
        for device in &server.devices {
            let state = match device.health {
                Health::Well => condition,
                Health::Ill => "ill",
            };
            let leases = device.leases.iter().map(ToString::to_string).collect::<Vec<_>>();
            rows.push(vec![
                server.name.to_string(),
                device.uuid.to_string(),
                device.model.clone(),
                Size(device.memory_bytes).to_string(),
                Size(device.free_bytes).to_string(),
                device.free_percent.to_string(),
                device.load_percent.to_string(),
                state.into(),
                leases.join(" "),
            ]);
        }
    }
    let heads =
        ["SERVER", "DEVICE", "MODEL", "MEMORY", "FREE", "FREE %", "LOAD %", "STATE", "LEASES"];
    let none = "The pool has no devices; `outboard serve --pool` registers a server.";
    Table { heads: heads.into(), rows, none }
}

pub(super) fn leases(view: &PoolView) -> Table {
    let shown = |granted: &Granted| match granted.usage {
        Use::Exclusive => format!("{}/{}", granted.server, granted.device),
        Use::Shared(share) => format!(
            "{}/{} ({} %, {})",
            granted.server,
            granted.device,
            share.percent(),
            Size(granted.memory_bytes)
        ),
    };
    let row = |lease: &outboard_pool::api::LeaseView| {
        let devices = lease.devices.iter().map(shown).collect::<Vec<_>>();
        vec![
            lease.number.to_string(),
            lease.owner.to_string(),
            lease.since.to_string(),
            lease.expires.to_string(),
            lease.sessions.to_string(),
            Size(lease.used_bytes).to_string(),
            devices.join(" "),
            lease.over.clone().unwrap_or_default(),
        ]
    };
    let heads =
        ["LEASE", "OWNER", "SINCE", "EXPIRES", "SESSIONS", "USED", "DEVICES", "OVER BECAUSE"];
    let rows = view.leases.iter().map(row).collect();
    Table { heads: heads.into(), rows, none: "Nobody has a lease." }
}

pub(super) fn queue(view: &PoolView) -> Table {
    let row = |ticket: &outboard_pool::api::TicketView| {
        let part = match ticket.usage {
            Use::Exclusive => "exclusive".into(),
            Use::Shared(share) => format!("{} %", share.percent()),
        };
        vec![
            ticket.place.to_string(),
            ticket.owner.to_string(),
            ticket.since.to_string(),
            ticket.devices.to_string(),
            Size(ticket.memory_bytes).to_string(),
            part,
            ticket.because.clone(),
        ]
    };
    let heads = ["PLACE", "OWNER", "SINCE", "DEVICES", "MEMORY", "PART", "WAITS BECAUSE"];
    let rows = view.queue.iter().map(row).collect();
    Table { heads: heads.into(), rows, none: "Nobody waits." }
}

pub(super) fn owners(view: &PoolView) -> Table {
    let row = |owner: &outboard_pool::api::OwnerView| {
        vec![
            owner.owner.to_string(),
            owner.group.to_string(),
            owner.devices.to_string(),
            Size(owner.memory_bytes).to_string(),
            owner.waiting.to_string(),
            owner.quota.to_string(),
        ]
    };
    let heads = ["OWNER", "GROUP", "DEVICES", "MEMORY", "WAITING", "QUOTA"];
    let rows = view.owners.iter().map(row).collect();
    Table { heads: heads.into(), rows, none: "Nobody has or had anything." }
}

pub(super) fn why(why: &Why) -> Table {
    let rows = why.sentences.iter().map(|sentence| vec![sentence.clone()]).collect();
    Table { heads: vec!["WHY"], rows, none: "Nothing is known." }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_what_is_in_them() {
        let rows = vec![vec!["1".to_owned(), "ada".to_owned()]];
        let table = Table { heads: vec!["LEASE", "OWNER"], rows, none: "none" };
        assert_eq!(text(&table), "LEASE  OWNER\n1      ada\n");
        assert_eq!(text(&Table { rows: Vec::new(), ..table }), "none\n");
    }
}
