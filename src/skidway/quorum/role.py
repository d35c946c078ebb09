"""What a member of the quorum is at the moment.

unattached    no leader is known in this epoch; a voter waits, then stands; an observer asks around
follower      fetches from the leader
prospective   asks whether it could win, before it disturbs anybody with a new epoch
candidate     asks for votes in its new epoch
leader        appends, counts what a majority holds, resigns when it does not hear of one
resigned      led this epoch and never will again; others should stand
"""

from enum import Enum


class Role(Enum):
    UNATTACHED = "unattached"
    FOLLOWER = "follower"
    PROSPECTIVE = "prospective"
    CANDIDATE = "candidate"
    LEADER = "leader"
    RESIGNED = "resigned"
