//! States that are found by keys which depend on no opening.

use super::{found, found_of, key, saved, session, tenant};
use crate::store::{LOOSE_OPENING, Store, Tenant};

async fn find(store: &dyn Store, tenant: &Tenant, keys: &[u64]) -> Option<(usize, u64)> {
    let keys: Vec<_> = keys.iter().map(|number| key(*number)).collect();
    found_of(store, tenant, LOOSE_OPENING, &keys).await
}

/// A generation with this opening, whose loose keys are these.
async fn save(store: &dyn Store, id: u8, number: u64, opening: u64, loose: [u64; 2]) {
    let mut saved = saved(tenant("a"), session(id), number);
    saved.opening = opening;
    let loose = loose.map(key);
    store.save_with_loose_keys(saved, loose).await.unwrap();
}

pub(super) async fn lead_to_the_newest_state_of_one_session(store: &dyn Store) {
    let one = tenant("a");
    save(store, 1, 10, 1, [910, 920]).await;
    // Not even where the opening is another one, as where the first message tells the time.
    save(store, 1, 20, 2, [911, 921]).await;
    for (keys, expected) in [
        (&[910][..], Some((0, 10))),
        (&[920], Some((0, 10))),
        (&[5, 921, 910], Some((1, 20))),
        (&[912], None),
    ] {
        // The second find may use a cache.
        for _ in 0..2 {
            assert_eq!(find(store, &one, keys).await, expected);
        }
        assert_eq!(find(store, &tenant("b"), keys).await, None);
    }
    // The same answer again, in the same session.
    save(store, 1, 30, 3, [910, 910]).await;
    assert_eq!(find(store, &one, &[910]).await, Some((0, 30)));
    assert_eq!(found(store, &one, &[10]).await, Some((0, 10)));
    // A state that is saved without them keeps what there is.
    store.save_state(saved(one, session(1), 40)).await.unwrap();
    assert_eq!(find(store, &one, &[910]).await, Some((0, 30)));
}

pub(super) async fn of_two_sessions_are_ambiguous(store: &dyn Store) {
    let one = tenant("a");
    save(store, 1, 10, 1, [910, 920]).await;
    save(store, 2, 20, 2, [910, 921]).await;
    assert_eq!(find(store, &one, &[910]).await, None);
    assert_eq!(find(store, &one, &[910, 920]).await, Some((1, 10)));
    assert_eq!(find(store, &one, &[910, 921]).await, Some((1, 20)));
    // It stays so, whoever saves.
    for (id, number) in [(2, 30), (1, 40), (3, 50)] {
        save(store, id, number, 1, [910, 930 + number]).await;
        assert_eq!(find(store, &one, &[910]).await, None);
    }
    // The other keys of these states are what they were.
    assert_eq!(found(store, &one, &[40, 50]).await, Some((0, 40)));
    // A retry with the same answer is no second session.
    for _ in 0..3 {
        save(store, 5, 60, 1, [990, 991]).await;
        assert_eq!(find(store, &one, &[990]).await, Some((0, 60)));
    }
    // Another tenant's keys are other keys.
    let mut other = saved(tenant("b"), session(9), 70);
    other.opening = 1;
    let loose = [990, 991].map(key);
    store.save_with_loose_keys(other, loose).await.unwrap();
    assert_eq!(find(store, &one, &[990]).await, Some((0, 60)));
    assert_eq!(find(store, &tenant("b"), &[990]).await, Some((0, 70)));
}

pub(super) async fn go_with_their_generation(store: &dyn Store) {
    let one = tenant("a");
    for number in 1..=40 {
        save(store, 1, number * 10, 1, [5_000 + number, 6_000 + number]).await;
    }
    for number in 37..=40 {
        assert_eq!(
            find(store, &one, &[5_000 + number]).await,
            Some((0, number * 10))
        );
        assert_eq!(
            find(store, &one, &[6_000 + number]).await,
            Some((0, number * 10))
        );
    }
    for number in 1..24 {
        assert_eq!(
            find(store, &one, &[5_000 + number, 6_000 + number]).await,
            None
        );
    }
}
