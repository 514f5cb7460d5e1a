//! What is kept as keys and values of etcd, and back.

use super::calls::{Entry, Step};
use crate::desk::{Account, Change, Memory};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;

/// The most steps of a transaction: etcd takes 128 unless it is told otherwise.
const MOST_STEPS: usize = 100;
/// The most bytes of a transaction's values: etcd takes 1.5 MiB unless it is told otherwise.
const MOST_BYTES: usize = 512 << 10;

type Attempt<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// Which broker leads.
pub(super) fn leader(prefix: &str) -> String {
    format!("{prefix}leader")
}

/// That it is there: put again and again. It begins as the one before does.
pub(super) fn alive(prefix: &str) -> String {
    format!("{prefix}leader/alive")
}

/// Which transaction was the last.
pub(super) fn written(prefix: &str) -> String {
    format!("{prefix}written")
}

/// A transaction of a leader: its term, and the number.
pub(super) fn turn(term: u64, number: u64) -> Vec<u8> {
    format!("{term}/{number}").into_bytes()
}

/// The form of all this.
pub(super) fn form(prefix: &str) -> String {
    format!("{prefix}form")
}

/// The keys of leases.
pub(super) fn keys(prefix: &str) -> String {
    format!("{prefix}keys")
}

/// The number of the next lease.
fn next(prefix: &str) -> Vec<u8> {
    format!("{prefix}next").into_bytes()
}

/// The kinds of what there is more than once.
const SERVERS: &str = "servers";
const LEASES: &str = "leases";
const USED: &str = "used";
const PASSED: &str = "passed";

/// Keys in etcd that are read at a start, each with all that begins so.
pub(super) fn kinds(prefix: &str) -> [Vec<u8>; 6] {
    let all = |kind: &str| format!("{prefix}{kind}/").into_bytes();
    let one = [next(prefix), keys(prefix).into_bytes()];
    let [next, keys] = one;
    [next, keys, all(SERVERS), all(LEASES), all(USED), all(PASSED)]
}

/// The first key that does not begin so.
pub(super) fn behind(start: &[u8]) -> Vec<u8> {
    let mut end = start.to_vec();
    while end.last() == Some(&u8::MAX) {
        end.pop();
    }
    if let Some(last) = end.last_mut() {
        *last += 1;
    }
    end
}

fn numbered(prefix: &str, kind: &str, number: u64) -> Vec<u8> {
    // In the order of their numbers.
    format!("{prefix}{kind}/{number:020}").into_bytes()
}

fn begun(prefix: &str, second: i64) -> Vec<u8> {
    numbered(prefix, PASSED, u64::try_from(second).unwrap_or(0))
}

fn account(prefix: &str, account: &Account) -> Attempt<Vec<u8>> {
    let Account { day, owner, group, model } = account;
    let rest = serde_json::to_string(&(owner, group, model))?;
    Ok(format!("{prefix}{USED}/{day}/{rest}").into_bytes())
}

fn value(what: &impl Serialize) -> Attempt<Option<Vec<u8>>> {
    Ok(Some(serde_json::to_vec(what)?))
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Attempt<T> {
    Ok(serde_json::from_slice(bytes)?)
}

/// Transactions that together are these changes, in their order.
pub(super) fn transactions<'a>(
    prefix: &str,
    next_lease: &mut u64,
    changes: impl IntoIterator<Item = &'a Change>,
) -> Attempt<Vec<Vec<Step>>> {
    let mut all = Vec::new();
    let mut batch = Batch::default();
    for change in changes {
        if batch.is_full() {
            batch.close(&mut all);
        }
        match change {
            Change::Lease(kept) => {
                let number = kept.lease.number.0;
                if number >= *next_lease {
                    *next_lease = number.saturating_add(1);
                    batch.put(next(prefix), value(next_lease)?);
                }
                batch.put(numbered(prefix, LEASES, number), value(kept)?);
            }
            Change::Freed(number) => batch.put(numbered(prefix, LEASES, number.0), None),
            Change::Server(registered) => {
                let name = &registered.server.name;
                batch.put(format!("{prefix}{SERVERS}/{name}").into_bytes(), value(registered)?);
            }
            Change::Forgotten(name) => {
                batch.put(format!("{prefix}{SERVERS}/{name}").into_bytes(), None);
            }
            Change::Used(of, had) => batch.put(account(prefix, of)?, value(had)?),
            Change::Passed(at, point) => batch.put(begun(prefix, *at), value(point)?),
            Change::Keys(keys) => batch.put(self::keys(prefix).into_bytes(), value(keys)?),
            Change::NoDay(day) => {
                let from = format!("{prefix}{USED}/{day}/").into_bytes();
                batch.close(&mut all);
                all.push(vec![Step::Clear(from.clone(), behind(&from))]);
            }
            Change::NoPassed(before) => {
                batch.close(&mut all);
                all.push(vec![Step::Clear(begun(prefix, 0), begun(prefix, *before))]);
            }
        }
    }
    batch.close(&mut all);
    Ok(all)
}

/// A transaction that grows: of several changes of a key the last one counts, as etcd takes one.
#[derive(Default)]
struct Batch {
    puts: BTreeMap<Vec<u8>, Option<Vec<u8>>>,
    bytes: usize,
}

impl Batch {
    fn put(&mut self, key: Vec<u8>, value: Option<Vec<u8>>) {
        self.bytes += key.len() + value.as_ref().map_or(0, Vec::len);
        self.puts.insert(key, value);
    }

    fn is_full(&self) -> bool {
        // A change is two puts at most.
        self.puts.len() + 2 > MOST_STEPS || self.bytes > MOST_BYTES
    }

    fn close(&mut self, all: &mut Vec<Vec<Step>>) {
        let puts = std::mem::take(self).puts;
        if puts.is_empty() {
            return;
        }
        let step = |(key, value): (Vec<u8>, Option<Vec<u8>>)| match value {
            Some(value) => Step::Put(key, value),
            None => Step::Remove(key),
        };
        all.push(puts.into_iter().map(step).collect());
    }
}

/// Enters what was read of etcd.
pub(super) fn enter(memory: &mut Memory, prefix: &str, entry: &Entry) -> Attempt<()> {
    let key = std::str::from_utf8(&entry.key)?;
    let key = key.strip_prefix(prefix).ok_or("it is another pool's")?;
    let value = &entry.value;
    match key.split_once('/') {
        None if key == "next" => memory.next = read(value)?,
        None if key == "keys" => memory.keys = Some(read(value)?),
        Some((SERVERS, _)) => memory.servers.push(read(value)?),
        Some((LEASES, _)) => memory.leases.push(read(value)?),
        Some((PASSED, at)) => memory.passed.push((at.parse()?, read(value)?)),
        Some((USED, rest)) => {
            let (day, rest) = rest.split_once('/').ok_or("it is of no day")?;
            let (owner, group, model) = serde_json::from_str(rest)?;
            let account = Account { day: day.parse()?, owner, group, model };
            memory.used.push((account, read(value)?));
        }
        _ => {}
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use outboard_pool::words::LeaseNumber;

    #[test]
    fn what_begins_so_lies_before_what_is_behind() {
        assert_eq!(behind(b"/a/"), b"/a0");
        assert_eq!(behind(b"a\xff"), b"b");
    }

    #[test]
    fn a_transaction_is_no_longer_than_etcd_takes() {
        let freed = |number| Change::Freed(LeaseNumber(number));
        let mut changes: Vec<Change> = (0..1000).map(freed).collect();
        changes.insert(500, Change::NoPassed(60));
        changes.extend((0..1000).map(|_| freed(7)));
        let all = transactions("/p/", &mut 1, &changes).unwrap();
        assert!(all.iter().all(|steps| steps.len() <= MOST_STEPS));
        // What is cleared stands alone, since etcd refuses two steps for one key.
        let cleared = all.iter().filter(|steps| matches!(steps[0], Step::Clear(..)));
        assert_eq!(cleared.map(Vec::len).collect::<Vec<_>>(), [1]);
        let removed =
            |steps: &Vec<Step>| steps.iter().filter(|step| matches!(step, Step::Remove(_))).count();
        assert_eq!(all.iter().map(removed).sum::<usize>(), 1001, "the last thousand are one");
    }
}
