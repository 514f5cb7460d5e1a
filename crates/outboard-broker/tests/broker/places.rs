//! Where a broker keeps what it decides, to be opened again and again.

use outboard_broker::store::{Candidate, Cluster, FileStore, Leadership, Store, Trust};
use outboard_test_support::etcd::Etcd;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;
use tempfile::{TempDir, tempdir};
use tokio::runtime::Builder;
use tokio::sync::oneshot;

pub(crate) enum Place {
    File(PathBuf),
    /// A folder that goes with the test that made it.
    OwnFile(TempDir),
    /// The address of an etcd, which goes with the test that started it.
    Etcd(String, Option<Etcd>),
}

impl Place {
    pub(crate) fn file() -> Place {
        Place::OwnFile(tempdir().unwrap())
    }

    /// An etcd of so many members, if this machine has the program.
    pub(crate) fn etcd(members: usize) -> Option<Place> {
        let etcd = Etcd::start(members)?;
        Some(Place::Etcd(etcd.url(), Some(etcd)))
    }

    /// One that another process has made.
    pub(crate) fn named(name: &str) -> Place {
        match name.starts_with("etcd://") {
            true => Place::Etcd(name.to_owned(), None),
            false => Place::File(name.into()),
        }
    }

    pub(crate) fn name(&self) -> String {
        match self {
            Place::File(folder) => folder.display().to_string(),
            Place::OwnFile(folder) => folder.path().display().to_string(),
            Place::Etcd(url, _) => url.clone(),
        }
    }

    /// The store, of which nobody else leads.
    pub(crate) fn open(&self) -> Opened {
        match self {
            Place::File(folder) => open_file(folder),
            Place::OwnFile(folder) => open_file(folder.path()),
            Place::Etcd(url, _) => lead(url),
        }
    }
}

fn open_file(folder: &Path) -> Opened {
    Opened { store: Store::File(FileStore::open(folder).expect("the file is free")), led: None }
}

/// A store that this process may write to.
pub(crate) struct Opened {
    pub(crate) store: Store,
    /// The thread that says so.
    led: Option<(oneshot::Sender<()>, JoinHandle<()>)>,
}

impl Deref for Opened {
    type Target = Store;

    fn deref(&self) -> &Store {
        &self.store
    }
}

impl DerefMut for Opened {
    fn deref_mut(&mut self) -> &mut Store {
        &mut self.store
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        if let Some((stop, thread)) = self.led.take() {
            let _ = stop.send(());
            let _ = thread.join();
        }
    }
}

pub(crate) fn cluster(url: &str) -> Cluster {
    let address = url.parse().expect("it is an address");
    Cluster::new(&address, &Trust::default()).expect("it is on this machine")
}

/// Leads once nobody else does.
pub(crate) async fn elected(candidate: &mut Candidate) -> (Leadership, Store) {
    loop {
        if let Ok(Some((leadership, store))) = candidate.stand().await {
            return (leadership, Store::Etcd(store));
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

fn lead(url: &str) -> Opened {
    let mut candidate = Candidate::new(cluster(url), "https://test:1".into());
    let (tell, told) = channel();
    let (stop, stopped) = oneshot::channel();
    let thread = std::thread::spawn(move || {
        let runtime = Builder::new_current_thread().enable_all().build().expect("it can be");
        runtime.block_on(async {
            let (leadership, store) = elected(&mut candidate).await;
            tell.send(store).expect("somebody waits for it");
            tokio::select! {
                _ = stopped => leadership.resign().await,
                lost = candidate.hold(&leadership) => eprintln!("it leads no more: {lost}"),
            }
        });
    });
    Opened { store: told.recv().expect("it leads"), led: Some((stop, thread)) }
}
