//! One file, which survives a kill at any time.

use super::StoreError;
use crate::desk::{Account, Change, Memory};
use outboard_auth::files;
use redb::backends::FileBackend;
use redb::{
    Database, DatabaseError, ReadableDatabase, ReadableTable, TableDefinition, WriteTransaction,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

type Table<K> = TableDefinition<'static, K, &'static [u8]>;

const LEASES: Table<u64> = TableDefinition::new("leases");
const SERVERS: Table<&str> = TableDefinition::new("servers");
/// By day, owner, group and model.
const USED: Table<(&str, &str, &str, &str)> = TableDefinition::new("used_by");
/// By day and owner: what releases before wrote in its place.
const FORMER_USED: Table<(&str, &str)> = TableDefinition::new("used");
/// Stands for a group and a model that such a release did not note.
const NOT_NOTED: &str = "unknown";
/// How the pool was, by the second at which a piece of time began.
const PASSED: Table<i64> = TableDefinition::new("passed");
const ABOUT: TableDefinition<'static, &str, u64> = TableDefinition::new("about");
/// What is there once, by its name.
const SINGLE: Table<&str> = TableDefinition::new("single");

/// The number of the next lease, in `ABOUT`.
const NEXT: &str = "next";
/// The form of all this, in `ABOUT`.
const FORM: &str = "form";
/// The keys of leases, in `SINGLE`.
const KEYS: &str = "keys";
/// The form that this release reads and writes.
const PRESENT_FORM: u64 = 1;

/// The most memory for what has been read of the file.
const CACHE: usize = 16 << 20;

/// Bytes at the beginning of a file that redb writes last when it makes one.
const MAGIC: usize = 9;

/// The file.
#[derive(Debug)]
pub struct FileStore {
    database: Database,
    path: PathBuf,
}

type Attempt<T> = Result<T, Box<dyn std::error::Error + Send + Sync>>;

fn written(what: &impl Serialize) -> Attempt<Vec<u8>> {
    Ok(serde_json::to_vec(what)?)
}

fn read<T: DeserializeOwned>(bytes: &[u8]) -> Attempt<T> {
    Ok(serde_json::from_slice(bytes)?)
}

/// Opens the file. One that a broker was killed over while it made it is put aside: nothing was
/// kept in it yet.
fn finished(path: &Path) -> io::Result<File> {
    let mut options = File::options();
    options.read(true).write(true).create(true).truncate(false).mode(0o600);
    loop {
        let file = options.open(path)?;
        let mut first = [0; MAGIC];
        // Whoever holds the lock may be making it.
        let unfinished = file.try_lock().is_ok()
            && file.metadata()?.len() > 0
            && file.read_at(&mut first, 0)? == MAGIC
            && first == [0; MAGIC];
        if !unfinished {
            return Ok(file);
        }
        fs::rename(path, path.with_extension("redb.unfinished"))?;
    }
}

impl FileStore {
    /// Opens the file in the folder, or makes it.
    ///
    /// # Errors
    ///
    /// If another broker has it, or it cannot be used.
    pub fn open(folder: &Path) -> Result<FileStore, StoreError> {
        let path = folder.join("pool.redb");
        let unusable = |reason: &dyn std::fmt::Display| StoreError::Unusable {
            path: path.clone(),
            reason: reason.to_string(),
        };
        files::own_folder(folder).map_err(|error| unusable(&error))?;
        let backend = FileBackend::new(finished(&path).map_err(|error| unusable(&error))?);
        let mut builder = Database::builder();
        let builder = builder.set_cache_size(CACHE);
        let opened = backend.and_then(|backend| builder.create_with_backend(backend));
        let database = opened.map_err(|error| match error {
            DatabaseError::DatabaseAlreadyOpen => StoreError::InUse { path: path.clone() },
            error => unusable(&error),
        })?;
        let store = FileStore { database, path };
        store.prepare().map_err(|error| store.unusable(&*error))?;
        Ok(store)
    }

    fn unusable(&self, reason: &dyn std::fmt::Display) -> StoreError {
        StoreError::Unusable { path: self.path.clone(), reason: reason.to_string() }
    }

    fn prepare(&self) -> Attempt<()> {
        let work = self.database.begin_write()?;
        {
            work.open_table(LEASES)?;
            work.open_table(SERVERS)?;
            take_over_used(&work)?;
            work.open_table(PASSED)?;
            work.open_table(SINGLE)?;
            let mut about = work.open_table(ABOUT)?;
            let form = about.get(FORM)?.map(|form| form.value());
            match form {
                None => {
                    about.insert(FORM, PRESENT_FORM)?;
                }
                Some(PRESENT_FORM) => {}
                Some(other) => {
                    return Err(format!(
                        "it has form {other}, and this release knows form {PRESENT_FORM}; use the \
                         release that wrote it"
                    )
                    .into());
                }
            }
        }
        work.commit()?;
        Ok(())
    }

    /// All that was kept.
    ///
    /// # Errors
    ///
    /// If it cannot be read: a lease that is not known would be given out again.
    pub fn memory(&self) -> Result<Memory, StoreError> {
        self.read_all().map_err(|error| self.unusable(&*error))
    }

    fn read_all(&self) -> Attempt<Memory> {
        let look = self.database.begin_read()?;
        let next = look.open_table(ABOUT)?.get(NEXT)?.map_or(1, |next| next.value());
        let mut memory = Memory { next, ..Memory::default() };
        for entry in look.open_table(SERVERS)?.iter()? {
            memory.servers.push(read(entry?.1.value())?);
        }
        for entry in look.open_table(LEASES)?.iter()? {
            memory.leases.push(read(entry?.1.value())?);
        }
        for entry in look.open_table(USED)?.iter()? {
            let (key, used) = entry?;
            let (day, owner, group, model) = key.value();
            let (day, owner, group) = (day.parse()?, owner.parse()?, group.parse()?);
            let account = Account { day, owner, group, model: model.to_owned() };
            memory.used.push((account, read(used.value())?));
        }
        for entry in look.open_table(PASSED)?.iter()? {
            let (at, point) = entry?;
            memory.passed.push((at.value(), read(point.value())?));
        }
        let keys = look.open_table(SINGLE)?.get(KEYS)?;
        memory.keys = keys.map(|keys| read(keys.value())).transpose()?;
        Ok(memory)
    }

    /// Keeps all of these changes, or none. They are on the disk when this returns.
    ///
    /// # Errors
    ///
    /// If they cannot be kept.
    pub fn keep<'a>(
        &self,
        changes: impl IntoIterator<Item = &'a Change>,
    ) -> Result<(), StoreError> {
        self.write_all(changes).map_err(|error| self.unusable(&*error))
    }

    fn write_all<'a>(&self, changes: impl IntoIterator<Item = &'a Change>) -> Attempt<()> {
        let work = self.database.begin_write()?;
        {
            let mut leases = work.open_table(LEASES)?;
            let mut servers = work.open_table(SERVERS)?;
            let mut used = work.open_table(USED)?;
            let mut passed = work.open_table(PASSED)?;
            let mut about = work.open_table(ABOUT)?;
            let mut single = work.open_table(SINGLE)?;
            for change in changes {
                match change {
                    Change::Lease(kept) => {
                        let number = kept.lease.number.0;
                        leases.insert(number, written(kept)?.as_slice())?;
                        let next = about.get(NEXT)?.map_or(1, |next| next.value());
                        about.insert(NEXT, next.max(number.saturating_add(1)))?;
                    }
                    Change::Freed(number) => {
                        leases.remove(number.0)?;
                    }
                    Change::Server(registered) => {
                        let name = registered.server.name.as_str();
                        servers.insert(name, written(registered)?.as_slice())?;
                    }
                    Change::Forgotten(name) => {
                        servers.remove(name.as_str())?;
                    }
                    Change::Used(Account { day, owner, group, model }, had) => {
                        let (day, had) = (day.to_string(), written(had)?);
                        let key = (day.as_str(), owner.as_str(), group.as_str(), model.as_str());
                        used.insert(key, had.as_slice())?;
                    }
                    Change::NoDay(day) => {
                        let day = day.to_string();
                        used.retain(|(of, ..), _| of != day)?;
                    }
                    Change::Passed(at, point) => {
                        passed.insert(at, written(point)?.as_slice())?;
                    }
                    Change::NoPassed(before) => {
                        passed.retain_in::<i64, _>(..*before, |_, _| false)?;
                    }
                    Change::Keys(keys) => {
                        single.insert(KEYS, written(keys)?.as_slice())?;
                    }
                }
            }
        }
        work.commit()?;
        Ok(())
    }
}

/// Takes over what a release before has noted of use.
fn take_over_used(work: &WriteTransaction) -> Attempt<()> {
    let mut used = work.open_table(USED)?;
    for entry in work.open_table(FORMER_USED)?.iter()? {
        let (key, had) = entry?;
        let (day, owner) = key.value();
        used.insert((day, owner, NOT_NOTED, NOT_NOTED), had.value())?;
    }
    work.delete_table(FORMER_USED)?;
    Ok(())
}
