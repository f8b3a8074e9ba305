//! Shared values are read by all, and bounded.

use bytes::Bytes;

use super::super::{
    MAX_SHARED, MAX_SHARED_BYTES, MAX_SHARED_NAME_BYTES, SharedValues, Store, StoreError,
};

pub(super) async fn the_newest_value_of_a_name_is_read(store: &dyn Store) {
    assert_eq!(store.read_shared().await.unwrap(), SharedValues::default());
    for (name, value) in [("a", "1"), ("b", "2"), ("a", "3"), ("c", "")] {
        let before = store.shared_version();
        let value = Bytes::from_static(value.as_bytes());
        store.publish_shared(name.as_bytes(), value).await.unwrap();
        assert!(store.shared_version() > before);
    }
    let mut shared = store.read_shared().await.unwrap();
    shared.all.sort();
    let expected = [("a", "3"), ("b", "2"), ("c", "")];
    let expected = expected.map(|(name, value)| (Bytes::from(name), Bytes::from(value)));
    assert_eq!(shared.all, expected);
    assert_eq!(shared.version, store.shared_version());
}

pub(super) async fn sizes_and_counts_are_bounded(store: &dyn Store) {
    let most = Bytes::from(vec![b'v'; MAX_SHARED_BYTES]);
    let longest = vec![b'n'; MAX_SHARED_NAME_BYTES];
    for number in 0..=MAX_SHARED {
        let short = number.to_string();
        store
            .publish_shared(short.as_bytes(), "x".into())
            .await
            .unwrap();
    }
    store.publish_shared(&longest, most.clone()).await.unwrap();
    let shared = store.read_shared().await.unwrap();
    assert!(!shared.all.is_empty() && shared.all.len() <= MAX_SHARED);
    assert!(shared.all.contains(&(longest.clone().into(), most.clone())));
    let too_long = [&longest[..], b"x"].concat();
    for (name, value) in [
        (&too_long, &most),
        (&longest, &[&most[..], b"x"].concat().into()),
    ] {
        let refused = store.publish_shared(name, value.clone()).await;
        assert!(matches!(refused, Err(StoreError::Overlong(_))));
    }
}
