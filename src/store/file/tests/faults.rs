//! Errors of opening, reading and writing.

use super::*;

/// A second file description conflicts with the lock like another process.
#[tokio::test]
async fn a_file_in_use_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let refused = FileStore::open(&LIMITS, directory.path()).err().unwrap();
    let message = refused.to_string();
    assert!(
        message.contains("sessions.db is in use by another process"),
        "{message}"
    );
    assert!(message.contains("data_dir"), "{message}");
    store
        .save_state(saved(tenant("a"), session(1), 10))
        .await
        .unwrap();
    store.close().await;
    let next = open(&directory);
    assert!(found(&next, &tenant("a"), &[10]).await.is_some());
}

#[tokio::test]
async fn a_newer_format_is_refused_and_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    store
        .save_state(saved(tenant("a"), session(1), 10))
        .await
        .unwrap();
    let newer = run(&store, |file| {
        let (format, application) = (open::FORMAT + 1, open::APPLICATION + open::FORMAT + 1);
        file.pragma_update(None, "user_version", format).unwrap();
        file.pragma_update(None, "application_id", application)
            .unwrap();
    });
    newer.await.unwrap();
    // What a killed process leaves has its newest part in the log.
    let killed = tempfile::tempdir().unwrap();
    for name in ["sessions.db", "sessions.db-wal"] {
        fs::copy(directory.path().join(name), killed.path().join(name)).unwrap();
    }
    store.close().await;
    for directory in [directory, killed] {
        let path = directory.path().join("sessions.db");
        let log = directory.path().join("sessions.db-wal");
        let read = || (fs::read(&path).unwrap(), fs::read(&log).unwrap_or_default());
        let before = read();
        let refused = FileStore::open(&LIMITS, directory.path()).err().unwrap();
        let message = refused.to_string();
        assert!(
            message.contains("sessions.db was written by a newer release (format 3"),
            "{message}"
        );
        assert!(read() == before, "its files are changed");
        assert_eq!(
            files(&directory, "sessions.db.damaged"),
            Vec::<String>::new()
        );
    }
}

/// A newer format number in the header alone is damage.
#[tokio::test]
async fn a_damaged_version_number_is_set_aside() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let newer = run(&store, |file| {
        file.pragma_update(None, "user_version", open::FORMAT + 1)
            .unwrap();
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

/// SQLite refuses to grow the file, as on a full disk.
#[tokio::test]
async fn a_full_disk_fails_only_saves_without_room() {
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
    // A save with enough room does not fail because of others in its group.
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
async fn a_read_only_file_fails_saves_until_it_is_writable() {
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
async fn a_panic_of_the_writer_fails_one_group_only() {
    let directory = tempfile::tempdir().unwrap();
    let store = open(&directory);
    let one = tenant("a");
    store.save_state(saved(one, session(1), 10)).await.unwrap();
    let failed = run(&store, |_| panic!("a test")).await;
    assert!(matches!(failed, Err(StoreError::Unreachable(_))));
    store.save_state(saved(one, session(2), 20)).await.unwrap();
    for number in [10, 20] {
        assert_eq!(found(&store, &one, &[number]).await, Some((0, number)));
    }
}

#[tokio::test]
async fn opening_the_file_is_tried_again() {
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
