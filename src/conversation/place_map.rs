//! Maps the places of messages in a request to their places in a later request, after the client has edited its history.

/// Places of messages, counted without system messages. The map never changes their order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceMap {
    /// Messages before this place were not compared: all of them have moved by `shift`.
    first: u32,
    shift: i64,
    /// For each message from `first` on, its place in the later request; `None` if it is gone.
    places: Vec<Option<u32>>,
    /// The place of the request's end in the later request.
    end: u32,
}

impl PlaceMap {
    /// `places`: the new places of the messages from `first` on, ascending. `end`: the new place of the message after them.
    pub fn new(first: u32, places: Vec<Option<u32>>, end: u32) -> Self {
        let kept = (i64::from(first)..).zip(places.iter());
        let mut kept = kept.filter_map(|(was, now)| Some(i64::from((*now)?) - was));
        let all = i64::from(first) + places.len() as i64;
        Self {
            first,
            shift: kept.next().unwrap_or(i64::from(end) - all),
            places,
            end,
        }
    }

    /// The new place of a message, or of the request's end; `None` if the message is gone.
    pub fn find_place(&self, place: u32) -> Option<u32> {
        match place.checked_sub(self.first) {
            None => u32::try_from(i64::from(place) + self.shift).ok(),
            Some(at) if at as usize == self.places.len() => Some(self.end),
            Some(at) => *self.places.get(at as usize)?,
        }
    }

    /// The new place of the first message from `place` on that is still there.
    pub fn find_boundary(&self, place: u32) -> u32 {
        match place.checked_sub(self.first) {
            None => u32::try_from(i64::from(place) + self.shift).unwrap_or(0),
            Some(at) => {
                let behind = self.places.iter().skip(at as usize);
                behind.flatten().next().copied().unwrap_or(self.end)
            }
        }
    }

    /// Whether no message has moved or is gone.
    pub fn is_identity(&self) -> bool {
        let mut places = (self.first..).zip(&self.places);
        self.shift == 0 && places.all(|(was, now)| *now == Some(was))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_gone_has_no_place_and_its_boundary_is_what_follows() {
        // Of the messages 4 to 8, the fifth and the seventh are gone, and one has come before the sixth.
        let map = PlaceMap::new(4, vec![Some(4), None, Some(6), None, Some(7)], 8);
        let places = (3..11).map(|place| map.find_place(place));
        let expected = [
            Some(3),
            Some(4),
            None,
            Some(6),
            None,
            Some(7),
            Some(8),
            None,
        ];
        assert!(places.eq(expected));
        let boundaries = (3..11).map(|place| map.find_boundary(place));
        assert!(boundaries.eq([3, 4, 6, 6, 7, 7, 8, 8]));
        assert!(!map.is_identity());
        assert!(PlaceMap::new(4, vec![Some(4), Some(5)], 6).is_identity());
    }

    #[test]
    fn messages_that_were_not_compared_move_with_the_first_that_is_there() {
        let map = PlaceMap::new(4, vec![None, Some(3)], 4);
        assert_eq!((map.find_place(3), map.find_place(2)), (Some(1), Some(0)));
        assert_eq!((map.find_place(0), map.find_boundary(0)), (None, 0));
        let none = PlaceMap::new(0, vec![None, None], 1);
        assert_eq!((none.find_place(1), none.find_boundary(0)), (None, 1));
    }
}
