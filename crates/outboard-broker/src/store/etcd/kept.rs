//! What a leader keeps in etcd.

use super::calls::{Condition, Step};
use super::line::{EtcdError, Line};
use super::records;
use crate::desk::{Change, Memory};
use crate::store::StoreError;
use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::runtime::{Builder, Runtime};

/// The form that this release reads and writes.
const PRESENT_FORM: &str = "1";
/// How many keys are read at once.
const PAGE: usize = 100;
/// How long to wait before an etcd that does not answer is asked again.
const PAUSE: Duration = Duration::from_millis(100);

/// The store of a broker that leads.
#[derive(Debug)]
pub struct EtcdStore {
    /// Until it is dropped.
    runtime: Option<Runtime>,
    writer: Writer,
}

#[derive(Debug)]
struct Writer {
    line: Line,
    /// Of this leader, and of no other one.
    term: u64,
    /// At which it has begun to lead.
    begun: i64,
    /// How many transactions are written.
    written: u64,
    /// The number of the next lease.
    next: u64,
    /// Whether this broker leads no more.
    is_over: Arc<AtomicBool>,
    /// Whether the log says that etcd does not answer.
    is_told: Cell<bool>,
}

impl EtcdStore {
    pub(super) fn open(
        line: Line,
        term: u64,
        begun: i64,
        is_over: Arc<AtomicBool>,
    ) -> Result<EtcdStore, StoreError> {
        let runtime = Builder::new_current_thread().enable_all().build();
        let runtime = runtime.map_err(|error| StoreError::Strange(error.to_string()))?;
        let is_told = Cell::new(false);
        let writer = Writer { line, term, begun, written: 0, next: 1, is_over, is_told };
        Ok(EtcdStore { runtime: Some(runtime), writer })
    }

    /// All that leaders before have kept. Not to be called where others wait: it blocks.
    ///
    /// # Errors
    ///
    /// If it cannot be read, or this broker does not lead any more.
    pub fn memory(&mut self) -> Result<Memory, StoreError> {
        let EtcdStore { runtime, writer } = self;
        block(runtime.as_ref(), writer.memory())
    }

    /// As [`Store::keep`](crate::store::Store::keep). It waits for an etcd that is away for as long
    /// as this broker may lead.
    ///
    /// # Errors
    ///
    /// If this broker does not lead any more.
    pub fn keep<'a>(
        &mut self,
        changes: impl IntoIterator<Item = &'a Change>,
    ) -> Result<(), StoreError> {
        let EtcdStore { runtime, writer } = self;
        let all = records::transactions(writer.line.prefix(), &mut writer.next, changes)
            .map_err(|error| StoreError::Strange(error.to_string()))?;
        block(runtime.as_ref(), async {
            for steps in all {
                writer.write(steps).await?;
            }
            Ok(())
        })
    }
}

fn block<T>(
    runtime: Option<&Runtime>,
    work: impl Future<Output = Result<T, StoreError>>,
) -> Result<T, StoreError> {
    runtime.map_or_else(|| Err(over("it ends")), |runtime| runtime.block_on(work))
}

impl Drop for EtcdStore {
    fn drop(&mut self) {
        // It may be dropped where nothing may block.
        if let Some(runtime) = self.runtime.take() {
            runtime.shutdown_background();
        }
    }
}

fn over(reason: &str) -> StoreError {
    StoreError::NoLongerLeads(reason.to_owned())
}

impl Writer {
    /// Waits for etcd as long as this broker may lead.
    async fn wait(&self, error: EtcdError) -> Result<(), StoreError> {
        match error {
            EtcdError::Refused { .. } => Err(StoreError::Strange(error.to_string())),
            EtcdError::Away(_) if self.is_over.load(Ordering::Relaxed) => {
                Err(over(&error.to_string()))
            }
            EtcdError::Away(_) => {
                if !self.is_told.replace(true) {
                    tracing::warn!(%error, "etcd does not take what this broker decides; it tries again");
                }
                tokio::time::sleep(PAUSE).await;
                Ok(())
            }
        }
    }

    async fn memory(&mut self) -> Result<Memory, StoreError> {
        self.check_form().await?;
        let prefix = self.line.prefix().to_owned();
        let mut memory = Memory { next: 1, ..Memory::default() };
        for kind in records::kinds(&prefix) {
            let (mut from, to) = (kind.clone(), records::behind(&kind));
            loop {
                let page = self.line.page((&from, &to), PAGE).await;
                let (entries, has_more) = match page {
                    Ok(page) => page,
                    Err(error) => {
                        self.wait(error).await?;
                        continue;
                    }
                };
                for entry in &entries {
                    records::enter(&mut memory, &prefix, entry).map_err(|reason| {
                        let key = String::from_utf8_lossy(&entry.key);
                        StoreError::Strange(format!("{key}: {reason}"))
                    })?;
                }
                let Some(last) = entries.last().filter(|_| has_more) else { break };
                from = [&last.key[..], b"\0"].concat();
            }
        }
        self.next = memory.next;
        Ok(memory)
    }

    /// Checks that it is of this release, or new.
    async fn check_form(&mut self) -> Result<(), StoreError> {
        let form = records::form(self.line.prefix());
        let found = loop {
            match self.line.get(&form).await {
                Ok(found) => break found,
                Err(error) => self.wait(error).await?,
            }
        };
        match found {
            Some(entry) if entry.value == PRESENT_FORM.as_bytes() => Ok(()),
            Some(entry) => Err(StoreError::Strange(format!(
                "it has form {}, and this release knows form {PRESENT_FORM}; use the release that \
                 wrote it, or another prefix",
                String::from_utf8_lossy(&entry.value)
            ))),
            None => self.write(vec![Step::Put(form.into(), PRESENT_FORM.into())]).await,
        }
    }

    /// Writes a transaction once, however often it is sent.
    async fn write(&mut self, mut steps: Vec<Step>) -> Result<(), StoreError> {
        let prefix = self.line.prefix();
        let (leader, written) = (records::leader(prefix), records::written(prefix));
        let turn = |number| records::turn(self.term, number);
        let (before, after) = (turn(self.written), turn(self.written + 1));
        let before = String::from_utf8_lossy(&before).into_owned();
        let conditions =
            [Condition::Unchanged(leader, self.begun), Condition::Has(written.clone(), before)];
        steps.push(Step::Put(written.clone().into_bytes(), after.clone()));
        loop {
            let outcome = self.line.transact(&conditions, &steps, &written).await;
            match outcome {
                Ok(outcome) if outcome.is_done => break,
                // It was written although the answer was lost.
                Ok(outcome) if outcome.found(&after) => break,
                Ok(_) => return Err(over("another broker leads, or etcd had not heard of it")),
                Err(error) => self.wait(error).await?,
            }
        }
        self.written += 1;
        if self.is_told.take() {
            tracing::info!("etcd takes what this broker decides again");
        }
        Ok(())
    }
}
