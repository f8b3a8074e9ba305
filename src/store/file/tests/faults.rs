//! What keeps the file from being opened, read or written.

use super::*;

/// Another process's lock is that of another description of the same file, as here.
#[tokio::test]
async fn a_file_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let refused = FileStore::open(&LIMITS, directory.path()).unwrap_err();
    let said = refused.to_string();
    assert!(
        said.contains("sessions.db is in use by another process"),
        "{said}"
    );
    assert!(said.contains("data_dir"), "{said}");
    store
        .save_state(saved(tenant("a"), session(1), 10))
        .await
        .unwrap();
    store.close().await;
    let next = open(&directory);
    assert!(found(&next, &tenant("a"), &[10]).await.is_some());
}

#[tokio::test]
async fn a_newer_format_is_refused_and_left_as_it_is() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    let store = open(&directory);
    store
        .save_state(saved(tenant("a"), session(1), 10))
        .await
        .unwrap();
    let newer = run(&store, |file| {
        file.execute_batch("PRAGMA user_version = 2").unwrap();
        schema::write_meta(file, "format", 2).unwrap();
    });
    newer.await.unwrap();
    store.close().await;
    let before = fs::read(&path).unwrap();
    let refused = FileStore::open(&LIMITS, directory.path()).unwrap_err();
    let said = refused.to_string();
    assert!(
        said.contains("sessions.db was written by a newer release (format 2"),
        "{said}"
    );
    assert_eq!(fs::read(&path).unwrap(), before);
    assert_eq!(
        files(&directory, "sessions.db.damaged"),
        Vec::<String>::new()
    );
}

/// A number in the head alone is damage: nothing else says that it is newer.
#[tokio::test]
async fn a_damaged_version_is_no_newer_release() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let newer = run(&store, |file| {
        file.execute_batch("PRAGMA user_version = 2").unwrap()
    });
    newer.await.unwrap();
    store.close().await;
    let store = open(&directory);
    store
        .save_state(saved(tenant("a"), session(1), 10))
        .await
        .unwrap();
    assert_eq!(
        files(&directory, "sessions.db.damaged")[0],
        "sessions.db.damaged-1"
    );
}

/// As far as SQLite tells: it refuses to grow the file, as where the disk is full.
#[tokio::test]
async fn a_full_disk_fails_saves_and_nothing_else() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let one = tenant("a");
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    let full = run(&store, |file| {
        file.execute_batch("PRAGMA max_page_count = 1").unwrap()
    });
    full.await.unwrap();
    let large = || {
        let mut large = saved(one, session(2), 20);
        large.state = Bytes::from(vec![7; 100_000]);
        large
    };
    for _ in 0..3 {
        let refused = store.save_state(large()).await;
        assert!(
            matches!(refused, Err(StoreError::Unreachable(_))),
            "{refused:?}"
        );
        assert_eq!(found(&store, &one, &[10]).await, Some((0, 10)));
        assert_eq!(found(&store, &one, &[20]).await, None);
    }
    // One that still finds room is not failed by its neighbours in a group.
    let (kept, failed) = tokio::join!(
        store.save_state(saved(one, session(1), 30)),
        store.save_state(large())
    );
    assert!(kept.is_ok() && failed.is_err());
    let room = run(&store, |file| {
        file.execute_batch("PRAGMA max_page_count = 1000000")
            .unwrap();
    });
    room.await.unwrap();
    store.save_state(large()).await.unwrap();
    let hit = store
        .find_state(&one, 1, &[key(20)])
        .await
        .unwrap()
        .unwrap();
    assert_eq!(hit.state, vec![7; 100_000]);
}

#[tokio::test]
async fn a_file_that_may_not_be_written_fails_saves_until_it_may() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let one = tenant("a");
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    let only = run(&store, |file| {
        file.execute_batch("PRAGMA query_only = 1").unwrap()
    });
    only.await.unwrap();
    assert!(store.save_state(saved(one, session(2), 20)).await.is_err());
    assert!(store.publish_shared(b"name", "value".into()).await.is_err());
    assert_eq!(store.shared_version(), 0);
    assert_eq!(found(&store, &one, &[10]).await, Some((0, 10)));
    let again = run(&store, |file| {
        file.execute_batch("PRAGMA query_only = 0").unwrap()
    });
    again.await.unwrap();
    store.save_state(saved(one, session(2), 20)).await.unwrap();
    assert_eq!(found(&store, &one, &[20]).await, Some((0, 20)));
}

#[tokio::test]
async fn a_panic_of_the_writer_fails_one_group_and_no_more() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let one = tenant("a");
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    let failed = run(&store, |_| panic!("as a test wants it")).await;
    assert!(matches!(failed, Err(StoreError::Unreachable(_))));
    store.save_state(saved(one, session(2), 20)).await.unwrap();
    for number in [10, 20] {
        assert_eq!(found(&store, &one, &[number]).await, Some((0, number)));
    }
}

/// What cannot be opened at first is opened as soon as it can be.
#[tokio::test]
async fn a_file_that_cannot_be_opened_comes_back() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("sessions.db");
    fs::create_dir(&path).unwrap();
    let store = open(&directory);
    let one = tenant("a");
    assert!(store.save_state(saved(one, session(1), 10)).await.is_err());
    assert!(store.find_state(&one, 1, &[key(10)]).await.is_err());
    fs::remove_dir(&path).unwrap();
    let back = async {
        while store.save_state(saved(one, session(1), 10)).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(20), back)
        .await
        .unwrap();
    assert_eq!(found(&store, &one, &[10]).await, Some((0, 10)));
}
