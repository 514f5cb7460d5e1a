use super::*;
use std::fs;
use tempfile::TempDir;

/// A folder for one test.
struct Folder(TempDir);

impl Folder {
    fn new() -> Folder {
        Folder(tempfile::tempdir().unwrap())
    }

    fn open(&self, limit: u64) -> ImageCache {
        ImageCache::open(self.0.path(), ONE_OWNER, limit).unwrap()
    }

    fn file(&self, name: &ImageName) -> PathBuf {
        self.0.path().join(ONE_OWNER).join(file_name(name))
    }
}

fn image(seed: u8, bytes: usize) -> (ImageName, Arc<Part>) {
    let content: Vec<u8> = (0..bytes).map(|index| (index as u8).wrapping_mul(31) ^ seed).collect();
    let name = ImageName { hash: ImageHash::of(&content).0, bytes: bytes as u64 };
    (name, Arc::new(Part::new(&content)))
}

const PATIENCE: Duration = Duration::from_secs(20);

/// Keeps an image and says it was used so many seconds ago.
fn keep(folder: &Folder, cache: &ImageCache, (name, part): &(ImageName, Arc<Part>), age: u64) {
    cache.keep(name, Arc::clone(part));
    cache.flush(PATIENCE);
    if let Ok(file) = File::options().write(true).open(folder.file(name)) {
        file.set_modified(std::time::SystemTime::now() - Duration::from_secs(age)).unwrap();
    }
}

#[test]
fn what_was_kept_is_found_by_any_later_session() {
    let folder = Folder::new();
    let images = [image(1, 0), image(2, 1), image(3, 100_000)];
    {
        let cache = folder.open(1 << 20);
        for (name, part) in &images {
            assert!(cache.find(name).is_none());
            cache.keep(name, Arc::clone(part));
            cache.keep(name, Arc::clone(part));
        }
        cache.flush(PATIENCE);
    }
    let cache = folder.open(1 << 20);
    for (name, part) in &images {
        assert_eq!(cache.find(name).unwrap().bytes(), part.bytes());
    }
    assert_eq!(
        fs::read_dir(folder.0.path().join(ONE_OWNER)).unwrap().count(),
        images.len(),
        "nothing unfinished stays"
    );
}

#[test]
fn owners_do_not_see_each_others_images() {
    let folder = Folder::new();
    let (name, part) = image(1, 1000);
    let cache = folder.open(1 << 20);
    cache.keep(&name, part);
    cache.flush(PATIENCE);
    assert!(ImageCache::open(folder.0.path(), "other", 1 << 20).unwrap().find(&name).is_none());
}

#[test]
fn damaged_files_are_removed_and_not_used() {
    let folder = Folder::new();
    let cache = folder.open(1 << 20);
    let (name, part) = image(1, 1000);
    for damage in [&b""[..], &part.bytes()[1..], &[0; 1000]] {
        cache.keep(&name, Arc::clone(&part));
        cache.flush(PATIENCE);
        assert!(cache.find(&name).is_some());
        fs::write(folder.file(&name), damage).unwrap();
        assert!(cache.find(&name).is_none());
        assert!(!folder.file(&name).exists());
    }
}

#[test]
fn the_least_recently_used_go_first() {
    let folder = Folder::new();
    let images: Vec<_> = (0..16).map(|seed| image(seed, 1000)).collect();
    {
        let cache = folder.open(1 << 20);
        for (index, image) in images.iter().enumerate() {
            keep(&folder, &cache, image, 1000 - index as u64);
        }
        // The oldest is used again.
        assert!(cache.find(&images[0].0).is_some());
    }
    let abandoned = folder.0.path().join(ONE_OWNER).join("unfinished-1-1");
    fs::write(&abandoned, b"half").unwrap();
    File::options()
        .write(true)
        .open(&abandoned)
        .unwrap()
        .set_modified(std::time::SystemTime::UNIX_EPOCH)
        .unwrap();
    let cache = folder.open(8 * 4096);
    keep(&folder, &cache, &image(99, 1000), 0);
    let left: Vec<usize> =
        (0..16).filter(|index| folder.file(&images[*index].0).exists()).collect();
    // With the new one seven blocks, which leaves some room below the limit.
    assert_eq!(left, [0, 11, 12, 13, 14, 15]);
    assert!(!abandoned.exists());
    // What is larger than all is not kept.
    let (name, part) = image(50, 8 * 4096 + 1);
    cache.keep(&name, part);
    cache.flush(PATIENCE);
    assert!(cache.find(&name).is_none() && cache.find(&images[15].0).is_some());
}

/// A file of a few bytes takes a block: many small images take no more of the disk than few large
/// ones.
#[test]
fn small_images_count_as_what_they_take() {
    use std::os::unix::fs::MetadataExt;
    const LIMIT: u64 = 1 << 20;
    let folder = Folder::new();
    let cache = folder.open(LIMIT);
    for number in 0..2000_u32 {
        let content = [b"abc".as_slice(), &number.to_le_bytes()].concat();
        let name = ImageName { hash: ImageHash::of(&content).0, bytes: content.len() as u64 };
        cache.keep(&name, Arc::new(Part::new(&content)));
    }
    cache.flush(PATIENCE);
    let files: Vec<_> = fs::read_dir(folder.0.path().join(ONE_OWNER)).unwrap().flatten().collect();
    let blocks: u64 = files.iter().map(|file| file.metadata().unwrap().blocks() * 512).sum();
    assert!(
        blocks <= LIMIT && files.len() as u64 <= LIMIT / 4096,
        "{} files, {blocks} bytes",
        files.len()
    );
    assert!(files.len() > 100, "{} files", files.len());
}

#[test]
fn a_folder_that_cannot_be_made_or_written_is_an_error_or_keeps_nothing() {
    let folder = Folder::new();
    fs::write(folder.0.path().join("file"), b"").unwrap();
    assert!(ImageCache::open(&folder.0.path().join("file"), ONE_OWNER, 1).is_err());

    // What becomes unwritable later: its folder is gone.
    let cache = folder.open(1 << 20);
    fs::remove_dir_all(&folder.0).unwrap();
    let (name, part) = image(1, 10);
    cache.keep(&name, Arc::clone(&part));
    cache.flush(PATIENCE);
    fs::create_dir_all(folder.0.path().join(ONE_OWNER)).unwrap();
    cache.keep(&name, part);
    cache.flush(PATIENCE);
    assert!(cache.find(&name).is_none(), "it is off for good");
}

#[test]
fn a_write_that_fails_is_the_last() {
    let folder = Folder::new();
    let cache = folder.open(1 << 20);
    let images = [image(1, 10), image(2, 10)];
    // In the way of the first file.
    fs::write(
        folder.0.path().join(ONE_OWNER).join(format!("unfinished-{}-1", std::process::id())),
        b"",
    )
    .unwrap();
    for (name, part) in &images {
        cache.keep(name, Arc::clone(part));
        cache.flush(PATIENCE);
        assert!(cache.find(name).is_none());
    }
}

#[test]
fn each_owner_has_a_folder_of_its_own_whatever_it_is_called() {
    assert_eq!(owners_folder("anonymous"), ONE_OWNER);
    let folders = ["alice", "bob", "user:0", "all", "../bob"].map(owners_folder);
    for (index, folder) in folders.iter().enumerate() {
        assert!(folder != ONE_OWNER && !folder.contains(['/', '.', ':']), "{folder}");
        assert!(!folders[..index].contains(folder), "{folder}");
    }
}

#[test]
fn files_of_the_future_are_used_and_go_first() {
    let folder = Folder::new();
    let images: Vec<_> = (0..8).map(|seed| image(seed, 1000)).collect();
    let abandoned = folder.0.path().join(ONE_OWNER).join("unfinished-1-1");
    {
        let cache = folder.open(1 << 20);
        for (index, image) in images.iter().enumerate() {
            keep(&folder, &cache, image, 1000 - index as u64);
        }
        fs::write(&abandoned, b"half").unwrap();
        // The clock was put back by ten years.
        let future = std::time::SystemTime::now() + Duration::from_secs(10 * 365 * 86400);
        for path in [folder.file(&images[6].0), folder.file(&images[7].0), abandoned.clone()] {
            File::options().write(true).open(path).unwrap().set_modified(future).unwrap();
        }
        // One of them is used again, which gives it a time that is right.
        assert!(cache.find(&images[7].0).is_some());
    }
    let cache = folder.open(8 * 4096);
    keep(&folder, &cache, &image(99, 1000), 0);
    let left: Vec<usize> = (0..8).filter(|index| folder.file(&images[*index].0).exists()).collect();
    assert_eq!(left, [1, 2, 3, 4, 5, 7]);
    assert!(!abandoned.exists());
}
