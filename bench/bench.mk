## bench        Skidway beside the machine's own limits; about two minutes; recorded in bench/RESULTS.md
bench: $(STAMP)
	$(BIN)/python -m bench $(ARGS)

## bench-kafka  the same loads in turns with Apache Kafka (Java 17 and Maven); about five minutes
bench-kafka: $(STAMP)
	$(BIN)/python -m bench --kafka $(ARGS)
