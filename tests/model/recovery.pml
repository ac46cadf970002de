/* The recovery protocol of docs/recovery.md as messages between ranks, their agents and the
 * coordinator, for spin. What is checked, as assertions and by the search for dead ends:
 *
 *   (A) at most one job_epoch acts at a time: once an arrangement has formed, nobody reduces or
 *       commits in an older one;
 *   (B) no two ranks commit different steps k: ranks of one arrangement begin at one step, every
 *       reduction joins contributions to one step of one job_epoch, and nobody is told to keep or
 *       commit what it has not;
 *   (C) a crash of the coordinator anywhere, also between deciding and telling, breaks neither, and
 *       training still comes to its end: every state without a successor is one in which all ranks
 *       have done all steps;
 *   (D) with one process failure and DP >= 2 no checkpoint is needed, and no step that every rank
 *       had committed is lost.
 *
 * Orders are a set that only grows: one that was sent may be delivered never, late, again, and in
 * any order with others, which is more than streams that break and reconnect can do. Reports are
 * taken once and in order (RankReport.number, `after`), so the last one a rank made is enough; what
 * the coordinator remembers of them is lost in a crash, what it has decided is not.
 *
 * Bounds: TP x DP ranks, STEPS steps, FAILURES processes that die, CRASHES of the coordinator.
 * UNDER_WAY: begins with the first arrangement formed instead of with processes coming up.
 */
#ifndef TP
#define TP 1
#endif
#ifndef DP
#define DP 2
#endif
#ifndef STEPS
#define STEPS 2
#endif
#ifndef FAILURES
#define FAILURES 1
#endif
#ifndef CRASHES
#define CRASHES 1
#endif
#define RANKS (TP * DP)
#define EPOCHS 8 /* never reached: asserted */
#define BIT(e) (1 << (e))

/* What a rank process does. */
#define READY 0   /* up, never assigned */
#define FORMING 1 /* has its assignment */
#define TRAINING 2
#define STOPPED 3
#define DEAD 4

/* Where it is in a step: nothing given yet, given to its column, reduced, given to its row. */
#define COMPUTING 0
#define GIVEN 1
#define REDUCED 2
#define SHARED 3

/* How it comes to the cut. */
#define KEEP 0
#define COMMIT 1
#define RECEIVE 2
#define FRESH 3

/* Ranks. Index dp * TP + tp. */
byte mode[RANKS];
byte phase[RANKS];
byte step[RANKS];
bit has[RANKS];         /* a whole state */
byte epoch[RANKS];      /* of the arrangement it acts in, or acted in last */
byte stopped_at[RANKS]; /* highest job_epoch of a Stop taken */
/* Contributions outlive their process: others may still be reading them. */
byte column_epoch[RANKS];
byte column_step[RANKS];
byte row_epoch[RANKS];
byte row_step[RANKS];

/* Orders under way to the process that is there now: job_epochs of Stops, the one of the Assign. */
byte stop_sent[RANKS];
byte assign_sent[RANKS];
/* Reports not taken yet: the last Ready (job_epoch 0) or Stopped, and a Stopped that was made
 * before the assignment the rank acts in, which comes first. */
bit news[RANKS];
byte news_epoch[RANKS];
byte old_epoch[RANKS]; /* 0: none */
bit formed_news[RANKS];

/* The coordinator, durable. */
byte in_force;  /* job_epoch of the last decision */
byte preparing; /* above in_force while members are collected */
byte formed;    /* highest job_epoch in which all have formed */
byte cut;       /* of in_force */
byte kind[RANKS];
byte known_sums; /* c: the sums for committing step c - 1 were handed out */
bit fresh[RANKS]; /* the process has not been in a decision */
bit was_ready[RANKS]; /* its Ready was taken */
/* Volatile. */
bit collecting;
bit got[RANKS]; /* its answer is there: it says where the rank stands */
bit member_formed[RANKS];
bit told[RANKS];

byte failures;
byte crashes;
/* Ghosts. */
byte acting;     /* highest job_epoch in which a rank has trained */
byte everywhere; /* steps that every rank had committed at some moment */

byte i, j, c, t, best;
bit ok, sums, all;

inline clear_scratch() { i = 0; j = 0; c = 0; t = 0; best = 0; ok = 0; sums = 0; all = 0 }

/* Orders that the rank would ignore are as good as gone. */
inline forget_old(r) {
  i = (epoch[r] > stopped_at[r] -> epoch[r] : stopped_at[r]);
  stop_sent[r] = (stop_sent[r] >> i) << i;
  if
  :: assign_sent[r] <= i -> assign_sent[r] = 0
  :: else
  fi
}

/* Everybody who may act in an older arrangement is told to stop. */
inline begin_collection(after_crash) {
  preparing = (preparing > in_force -> preparing : in_force) + 1;
  assert(preparing < EPOCHS);
  collecting = 1;
  for (i : 0 .. RANKS - 1) {
    member_formed[i] = 0;
    told[i] = 0;
    if
    :: fresh[i] && !after_crash /* Ready, or about to be: it keeps its answer */
    :: fresh[i] && after_crash && !was_ready[i] -> got[i] = 0
    :: else ->
       got[i] = 0;
       if
       :: mode[i] != DEAD -> stop_sent[i] = stop_sent[i] | BIT(preparing - 1)
       :: else
       fi
    fi
  }
}

inline note_progress() {
  c = STEPS;
  for (j : 0 .. RANKS - 1) {
    if
    :: !has[j] -> c = 0
    :: has[j] && step[j] < c -> c = step[j]
    :: else
    fi
  }
  everywhere = (c > everywhere -> c : everywhere)
}

/* Can every column come to c? In ok; in sums whether anybody may commit. */
inline try_cut() {
  sums = (known_sums == c && c > 0);
  all = 1;
  for (t : 0 .. TP - 1) {
    ok = 0;
    for (j : 0 .. DP - 1) {
      i = j * TP + t;
      sums = sums || (has[i] && step[i] == c && c > 0);
      ok = ok || (has[i] && phase[i] == REDUCED && step[i] + 1 == c)
    }
    all = all && ok
  }
  sums = sums || all; /* each tp's slot of the norm */
  all = 1;
  for (t : 0 .. TP - 1) {
    ok = 0;
    for (j : 0 .. DP - 1) {
      i = j * TP + t;
      ok = ok || (has[i] && (step[i] == c || (sums && phase[i] == REDUCED && step[i] + 1 == c)))
    }
    all = all && ok
  }
  ok = all
}

inline decide() {
  /* Nobody can still take an older assignment: who was in a decision has heard of its end. */
  for (i : 0 .. RANKS - 1) {
    assert(fresh[i] || mode[i] == DEAD || stopped_at[i] >= in_force || epoch[i] >= in_force)
  }
  best = STEPS + 1; /* none found */
  for (c : 0 .. STEPS) {
    try_cut();
    if
    :: ok -> best = c
    :: else
    fi
  }
  c = best;
  if
  :: c <= STEPS -> try_cut()
  :: else -> ok = 0; sums = 0; c = 0
  fi;
  if
  :: FAILURES == 1 && DP > 1 && in_force > 0 ->
     assert(ok || everywhere == 0); /* (D): no checkpoint is needed */
     assert(c >= everywhere)        /* (D): no step is lost */
  :: else
  fi;
  for (i : 0 .. RANKS - 1) {
    if
    :: !ok -> kind[i] = FRESH
    :: ok && has[i] && step[i] == c -> kind[i] = KEEP
    :: ok && has[i] && step[i] + 1 == c && phase[i] == REDUCED && sums -> kind[i] = COMMIT
    :: else -> kind[i] = RECEIVE
    fi
  }
  known_sums = (ok && sums -> c : 0);
  in_force = preparing;
  cut = c;
  collecting = 0;
  for (i : 0 .. RANKS - 1) {
    member_formed[i] = 0;
    told[i] = 0;
    got[i] = 0;
    fresh[i] = 0;
    was_ready[i] = 0
  }
}

inline stop_now(r) {
  phase[r] = (phase[r] == GIVEN -> COMPUTING : (phase[r] == SHARED -> REDUCED : phase[r]));
  mode[r] = STOPPED;
  formed_news[r] = 0
}

inline take_assign(r) {
  assert(assign_sent[r] == in_force);
  if
  :: news[r] && news_epoch[r] > 0 -> old_epoch[r] = news_epoch[r]
  :: else
  fi;
  news[r] = 0;
  epoch[r] = in_force;
  if
  :: kind[r] == KEEP -> assert(has[r] && step[r] == cut); phase[r] = COMPUTING /* (B) */
  :: kind[r] == COMMIT ->
     assert(has[r] && phase[r] == REDUCED && step[r] + 1 == cut); /* (B) */
     step[r]++;
     phase[r] = COMPUTING
  :: kind[r] == RECEIVE /* what it has stays until the copy is whole */
  :: kind[r] == FRESH -> has[r] = 1; step[r] = 0; phase[r] = COMPUTING
  fi;
  mode[r] = FORMING;
  forget_old(r);
  note_progress()
}

/* Guards, as expressions over all ranks j. */
#if RANKS > 2
#define THIRD(P, r, op) op P(r, 2)
#else
#define THIRD(P, r, op)
#endif
#if RANKS > 3
#define FOURTH(P, r, op) op P(r, 3)
#else
#define FOURTH(P, r, op)
#endif
#if RANKS > 4
#define LAST(P, r, op) op P(r, 4) op P(r, 5)
#else
#define LAST(P, r, op)
#endif
#define ALL(P, r) (P(r, 0) && P(r, 1) THIRD(P, r, &&) FOURTH(P, r, &&) LAST(P, r, &&))
#define ANY(P, r) (P(r, 0) || P(r, 1) THIRD(P, r, ||) FOURTH(P, r, ||) LAST(P, r, ||))

#define IS_THERE(r, j) (epoch[j] == epoch[r] && (mode[j] == FORMING || mode[j] == TRAINING))
#define GIVES(r, j) ((j) % TP == (r) % TP && (kind[j] == KEEP || kind[j] == COMMIT))
#define COLUMN_GAVE(r, j) \
  ((j) % TP != (r) % TP || (column_epoch[j] == epoch[r] && column_step[j] >= step[r]))
#define ROW_GAVE(r, j) ((j) / TP != (r) / TP || (row_epoch[j] == epoch[r] && row_step[j] >= step[r]))
/* A collective fails when somebody has left, forming also when the rendezvous is fenced. */
#define HAS_LEFT(r, j) \
  (mode[j] == DEAD || mode[j] == READY || (mode[j] == STOPPED && epoch[j] >= epoch[r]) || \
   epoch[j] > epoch[r])
#define HAS_ANSWERED(r, j) (got[j])
#define HAS_FORMED(r, j) (member_formed[j] || (j) == (r))
#define IS_DONE(r, j) (mode[j] == TRAINING && step[j] == STEPS)

/* --- moves, each indivisible ---------------------------------------------------------------- */

#define RANK_MOVES(r)                                                                              \
  :: d_step { mode[r] != DEAD && assign_sent[r] > epoch[r] && assign_sent[r] > stopped_at[r] ->    \
       take_assign(r); clear_scratch() }                                                           \
  :: d_step { mode[r] == FORMING && epoch[r] == in_force && preparing <= in_force &&               \
              ALL(IS_THERE, r) && (kind[r] != RECEIVE || ANY(GIVES, r)) ->                         \
       has[r] = 1; step[r] = cut; phase[r] = COMPUTING; mode[r] = TRAINING; formed_news[r] = 1;    \
       acting = (epoch[r] > acting -> epoch[r] : acting);                                          \
       assert(acting == epoch[r]); /* (A) */                                                       \
       note_progress(); clear_scratch() }                                                          \
  :: d_step { mode[r] == TRAINING && phase[r] == COMPUTING && step[r] < STEPS ->                   \
       phase[r] = GIVEN; column_epoch[r] = epoch[r]; column_step[r] = step[r] }                    \
  :: d_step { mode[r] == TRAINING && phase[r] == GIVEN && ALL(COLUMN_GAVE, r) ->                   \
       phase[r] = REDUCED;                                                                         \
       assert(acting == epoch[r]) /* (A) */ }                                                      \
  :: d_step { mode[r] == TRAINING && phase[r] == REDUCED ->                                        \
       phase[r] = SHARED; row_epoch[r] = epoch[r]; row_step[r] = step[r] }                         \
  :: d_step { mode[r] == TRAINING && phase[r] == SHARED && ALL(ROW_GAVE, r) ->                     \
       step[r]++; phase[r] = COMPUTING;                                                            \
       assert(acting == epoch[r]); /* (A) */                                                       \
       note_progress(); clear_scratch() }                                                          \
  :: d_step { (mode[r] == FORMING || mode[r] == TRAINING) &&                                       \
              (ANY(HAS_LEFT, r) || (mode[r] == FORMING && preparing > epoch[r])) ->                \
       stop_now(r); news[r] = 1; news_epoch[r] = epoch[r] }                                        \
  :: d_step { mode[r] != DEAD && failures < FAILURES ->                                            \
       failures++; mode[r] = DEAD;                                                                 \
       c = (assign_sent[r] > epoch[r] -> assign_sent[r] : epoch[r]);                               \
       for (j : 0 .. RANKS - 1) { /* its agent tells the others at once */                         \
         if                                                                                        \
         :: c > 0 && mode[j] != DEAD && assign_sent[j] <= c && epoch[j] <= c ->                    \
            stop_sent[j] = stop_sent[j] | BIT(c); forget_old(j)                                    \
         :: else                                                                                   \
         fi                                                                                        \
       }; clear_scratch() }

#define STOP_MOVE(r, e)                                                                            \
  :: d_step { mode[r] != DEAD && (stop_sent[r] & BIT(e)) && e >= epoch[r] && e >= stopped_at[r] && \
              !(news[r] && news_epoch[r] == e) ->                                                  \
       stopped_at[r] = e; stop_now(r); news[r] = 1; news_epoch[r] = e; forget_old(r);              \
       clear_scratch() }

#define STOP_MOVES(r) \
  STOP_MOVE(r, 1) STOP_MOVE(r, 2) STOP_MOVE(r, 3) STOP_MOVE(r, 4) STOP_MOVE(r, 5) STOP_MOVE(r, 6)

#define COORDINATOR_MOVES(r)                                                                       \
  :: d_step { !collecting && in_force > 0 && !told[r] && formed != in_force ->                     \
       told[r] = 1;                                                                                \
       assign_sent[r] = (mode[r] != DEAD -> in_force : 0);                                         \
       forget_old(r); clear_scratch() }                                                            \
  :: d_step { old_epoch[r] != 0 -> /* of an arrangement that is over: must not pass for an answer */\
       assert(!(collecting && !got[r] && ACCEPTS(r, old_epoch[r])));                               \
       old_epoch[r] = 0 }                                                                          \
  :: d_step { news[r] && old_epoch[r] == 0 ->                                                      \
       news[r] = 0;                                                                                \
       if                                                                                          \
       :: collecting && news_epoch[r] == 0 && fresh[r] -> got[r] = 1; was_ready[r] = 1             \
       :: collecting && news_epoch[r] > 0 && !got[r] && ACCEPTS(r, news_epoch[r]) -> got[r] = 1    \
       :: !collecting && news_epoch[r] > 0 && news_epoch[r] == in_force ->                         \
          begin_collection(0); got[r] = 1                                                          \
       :: else                                                                                     \
       fi; clear_scratch() }                                                                       \
  :: d_step { formed_news[r] && !news[r] ->                                                        \
       formed_news[r] = 0;                                                                         \
       if                                                                                          \
       :: !collecting && epoch[r] == in_force ->                                                   \
          member_formed[r] = 1;                                                                    \
          formed = (ALL(HAS_FORMED, r) -> in_force : formed)                                       \
       :: else                                                                                     \
       fi }                                                                                        \
  :: d_step { mode[r] == DEAD -> /* the agent's word of it; a new process takes the slot */        \
       mode[r] = READY; phase[r] = COMPUTING; step[r] = 0; has[r] = 0; epoch[r] = 0;               \
       stopped_at[r] = 0; stop_sent[r] = 0; assign_sent[r] = 0; news[r] = 1; news_epoch[r] = 0;    \
       old_epoch[r] = 0; formed_news[r] = 0; fresh[r] = 1; was_ready[r] = 0; got[r] = 0;           \
       if                                                                                          \
       :: !collecting -> begin_collection(0)                                                       \
       :: else                                                                                     \
       fi; clear_scratch() }

/* Which Stopped is an answer: one of the number before that in preparation, or of the arrangement
 * the rank was assigned last, after which no order has left. */
#ifdef TAKE_ANY_OLDER /* as it was once: finds a stale standing taken for an answer */
#define ACCEPTS(r, e) ((e) < preparing)
#else
#define ACCEPTS(r, e) ((e) + 1 == preparing || (!fresh[r] && (e) == in_force))
#endif

#define MOVES(r) RANK_MOVES(r) STOP_MOVES(r) COORDINATOR_MOVES(r)

active proctype protocol() {
  d_step {
#ifdef UNDER_WAY
    for (i : 0 .. RANKS - 1) {
      mode[i] = TRAINING; has[i] = 1; epoch[i] = 1; kind[i] = FRESH
    }
    in_force = 1; preparing = 1; formed = 1; acting = 1;
#else
    for (i : 0 .. RANKS - 1) { news[i] = 1; fresh[i] = 1 }
    preparing = 1;
    collecting = 1;
#endif
    clear_scratch()
  };
  do
  MOVES(0)
  MOVES(1)
#if RANKS > 2
  MOVES(2)
#endif
#if RANKS > 3
  MOVES(3)
#endif
#if RANKS > 4
  MOVES(4)
  MOVES(5)
#endif
  :: d_step { collecting && ALL(HAS_ANSWERED, 0) -> decide(); clear_scratch() }
  :: d_step { crashes < CRASHES ->
       crashes++;
       for (j : 0 .. RANKS - 1) { member_formed[j] = 0; told[j] = 0 };
       if
       :: in_force > 0 && formed == in_force && preparing <= in_force -> collecting = 0
       :: in_force == 0 -> /* nobody was assigned: it waits on */
          collecting = 1
       :: else -> begin_collection(1)
       fi; clear_scratch() }
  :: !collecting && ALL(IS_DONE, 0) -> break
  od
}
