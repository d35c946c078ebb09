## bench        Skidway beside the machine's own limits; about two minutes; recorded in bench/RESULTS.md
bench: bytecode
	$(BIN)/python -m bench $(ARGS)

## bench-kafka  the same loads in turns with Apache Kafka (Java 17 and Maven); about five minutes
bench-kafka: bytecode
	$(BIN)/python -m bench --kafka $(ARGS)
